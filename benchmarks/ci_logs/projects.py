"""Projects whose builds and tests fail: their files, the commands, and what the causes of the failure say."""

# Lines of other languages are as long as there.
# ruff: noqa: E501

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

NAMES = (
    "account", "basket", "calendar", "delivery", "estimate", "folder", "gateway", "history", "invoice", "journal",
    "keyring", "ledger", "mailbox", "notice", "order", "parcel", "quota", "refund", "schedule", "tariff",
)  # fmt: skip
# Names of passed tests, which say no less of failures than those of failed ones.
_CASES = (
    "adds_up", "fails_when_the_disk_is_full", "raises_an_error_for_a_negative_amount", "survives_a_timeout",
    "reports_a_missing_file", "rounds_half_to_even", "rejects_an_invalid_date", "retries_after_a_lost_connection",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Project:
    """`causes`: words of which each stands in one line of the log at least; all are needed."""

    name: str
    tools: tuple[str, ...]
    files: Mapping[str, str]
    commands: tuple[str, ...]
    causes: tuple[str, ...]
    needs_modules: bool = False


def _python_tests(faults: Mapping[str, str]) -> dict[str, str]:
    """A module and a file of tests for each name; a fault is a test of its own in one of the files."""
    files = {"conftest.py": ""}
    for name in NAMES:
        files[f"shop/{name}.py"] = (
            f'"""The {name}."""\n\n\ndef total(amounts, extra=0):\n    if extra < 0:\n'
            f'        raise ValueError(f"extra: must not be negative, not {{extra}}")\n    return sum(amounts) + extra\n'
        )
        tests = "".join(f"def test_{case}():\n    assert total([1, 2], 3) == 6\n\n\n" for case in _CASES)
        files[f"tests/test_{name}.py"] = f"from shop.{name} import total\n\n\n{tests}" + faults.get(name, "")
    files["shop/__init__.py"] = ""
    return files


_PYTHON_FAULTS = {
    "delivery": "def test_price_of_an_express_parcel():\n    fee = 4173\n    assert total([4000], 137) == fee\n",
    "ledger": "def test_carries_the_balance():\n    book = {'opening': 12}\n    assert total([book['closing_balance']]) == 12\n",
    "tariff": "def test_tariff_of_an_island():\n    total([88], extra=-9917)\n",
}
_PYTHON_CAUSES = ("4137 ==", "KeyError: 'closing_balance'", "must not be negative, not -9917")

_TYPED = {
    f"shop/{name}.py": f"def size(text: str) -> int:\n    return len(text)\n\n\nTOTAL: int = size('{name}')\n"
    for name in NAMES
} | {
    "shop/__init__.py": "",
    "shop/gateway.py": "def open_gateway(port: int) -> str:\n    return port + 7001\n",
    "shop/quota.py": "from shop.gateway import open_gateway\n\nopen_gateway('eighty')\nopen_gateways(80)\n",
    "shop/refund.py": "import os\nimport json\n\n\ndef refund(amount):\n    return undefined_rate * amount\n",
}


def _javascript(command: str, head: str) -> dict[str, str]:
    files = {
        "package.json": json.dumps(
            {"name": "shop", "version": "1.0.0", "private": True, "scripts": {"test": command}}
        )
        + "\n"
    }
    for name in NAMES[:12]:
        tests = "".join(
            f"  test('{case.replace('_', ' ')}', () => {{ equal(total([1, 2], 3), 6); }});\n"
            for case in _CASES
        )
        files[f"src/{name}.js"] = (
            "exports.total = (amounts, extra = 0) => amounts.reduce((sum, each) => sum + each, extra);\n"
            "exports.rate = (table, key) => table[key].percent;\n"
        )
        fault = _JAVASCRIPT_FAULTS.get(name, "")
        files[f"test/{name}.test.js"] = (
            f"{head}const {{ total, rate }} = require('../src/{name}');\n\ndescribe('{name}', () => {{\n{tests}{fault}}});\n"
        )
    return files


_JAVASCRIPT_FAULTS = {
    "basket": "  test('price of an express parcel', () => { equal(total([4000], 137), 4173); });\n",
    "history": "  test('rate of an island', () => { rate({ mainland: { percent: 3 } }, 'island'); });\n",
}
_JAVASCRIPT_CAUSES = ("4137", "Cannot read properties of undefined (reading 'percent')")

_C_FILES = {
    f"src/{name}.c": (
        f'#include "shop.h"\n\nint {name}_total(const int *amounts, int count)\n{{\n    int sum = 0;\n'
        f"    for (int at = 0; at < count; at++)\n        sum += amounts[at];\n    return sum;\n}}\n"
    )
    for name in NAMES
} | {
    "src/shop.h": "#ifndef SHOP_H\n#define SHOP_H\n"
    + "".join(f"int {name}_total(const int *amounts, int count);\n" for name in NAMES)
    + "#endif\n",
    "src/estimate.c": '#include "shop.h"\n\nint estimate_total(const int *amounts, int count)\n{\n    int unused;\n'
    "    return amounts[0] * tax_rate;\n}\n",
    "src/order.c": '#include "shop.h"\n\nstruct order { int number; };\n\nint order_total(const int *amounts, int count)\n{\n'
    "    struct order own = { 1 };\n    return own.discount + count;\n}\n",
    "src/parcel.c": '#include "shop.h"\n\nint parcel_total(const int *amounts, int count)\n{\n'
    "    return ledger_total(amounts);\n}\n",
    "src/notice.c": '#include "shop.h"\n\nint notice_total(const int *amounts, int count)\n{\n    int spare = 3;\n'
    "    return count;\n}\n",
    "Makefile": "CFLAGS = -Wall -Wextra -fdiagnostics-color=always -Isrc\nOBJECTS = $(patsubst %.c,%.o,$(sort $(wildcard src/*.c)))\n\n"
    "all: $(OBJECTS)\n\n%.o: %.c\n\t$(CC) $(CFLAGS) -c $< -o $@\n",
}

_RUST_LIB = (
    "".join(
        f"pub mod {name} {{\n    pub fn total(amounts: &[i64]) -> i64 {{\n        amounts.iter().sum()\n    }}\n}}\n"
        for name in NAMES[:10]
    )
    + "#[cfg(test)]\nmod tests {\n    use super::*;\n"
    + "".join(
        f"    #[test]\n    fn {name}_{case}() {{\n        assert_eq!({name}::total(&[1, 2]), 3);\n    }}\n"
        for name in NAMES[:10]
        for case in _CASES
    )
)
_RUST = {
    "Cargo.toml": '[package]\nname = "shop"\nversion = "0.1.0"\nedition = "2021"\n',
    "src/lib.rs": _RUST_LIB
    + "    #[test]\n    fn price_of_an_express_parcel() {\n        assert_eq!(basket::total(&[4000, 137]), 4173);\n    }\n"
    + "    #[test]\n    fn rate_of_an_island() {\n        let rates: Option<i64> = None;\n"
    '        rates.expect("no rate for the island of Neuwerk");\n    }\n}\n',
}
_RUST_BROKEN = {
    "Cargo.toml": _RUST["Cargo.toml"],
    "src/lib.rs": _RUST_LIB + "}\npub fn label(count: usize) -> String {\n    let spare = 3;\n    count\n}\n"
    "pub fn moved(text: String) -> (String, usize) {\n    let other = text;\n    (other, text.len())\n}\n",
}
_JAVA = {
    f"shop/{name.title()}.java": (
        f"package shop;\n\npublic class {name.title()} {{\n    public int total(int[] amounts) {{\n        int sum = 0;\n"
        "        for (int each : amounts) sum += each;\n        return sum;\n    }\n}\n"
    )
    for name in NAMES
} | {
    "shop/Mailbox.java": "package shop;\n\npublic class Mailbox {\n    public String open(int number) {\n        return number;\n    }\n}\n",
    "shop/Schedule.java": "package shop;\n\npublic class Schedule {\n    public int next() {\n        return new Ledger().closing();\n    }\n}\n",
}

PROJECTS = (
    # The step that passed before.
    Project("passed", ("pytest",), _python_tests({}), ("python -m compileall -f shop tests", "pytest -v --color=yes -p no:cacheprovider"), ()),
    Project("pytest-verbose", ("pytest",), _python_tests(_PYTHON_FAULTS), ("pytest -v --color=yes -p no:cacheprovider",), _PYTHON_CAUSES),
    Project("pytest-quiet", ("pytest",), _python_tests(_PYTHON_FAULTS), ("pytest --color=yes -p no:cacheprovider --tb=short",), _PYTHON_CAUSES),
    Project("unittest", ("python",), {
        f"tests/test_{name}.py": "import unittest\n\n\nclass Tests(unittest.TestCase):\n" + "".join(
            f"    def test_{case}(self):\n        self.assertEqual(1 + 2, 3)\n\n" for case in _CASES
        ) + ({
            "delivery": "    def test_price_of_an_express_parcel(self):\n        self.assertEqual(4137, 4173)\n",
            "ledger": "    def test_carries_the_balance(self):\n        {}['closing_balance']\n",
        }.get(name, ""))
        for name in NAMES
    } | {"tests/__init__.py": ""}, ("python -m unittest -v",), ("4137 != 4173", "KeyError: 'closing_balance'")),
    Project("checks-python", ("ruff", "mypy", "pytest"), _python_tests({"ledger": _PYTHON_FAULTS["ledger"]}) | _TYPED | {
        "tests/__init__.py": "",
    }, (
        "python -m compileall -f shop", "ruff check --no-cache shop", "mypy --color-output --cache-dir=/dev/null shop",
    ), (
        "Undefined name `undefined_rate`", 'got "int", expected "str"', 'incompatible type "str"; expected "int"',
    )),
    Project("make-gcc", ("make", "gcc"), _C_FILES, ("make -k CC=gcc",), (
        "tax_rate", "has no member named", "too few arguments to function",
    )),
    Project("node-spec", ("node",), _javascript("node --test --test-reporter=spec test/", "const { test, describe } = require('node:test');\nconst { strictEqual: equal } = require('node:assert');\n"), ("npm test",), _JAVASCRIPT_CAUSES),
    Project("node-tap", ("node",), _javascript("node --test --test-reporter=tap test/", "const { test, describe } = require('node:test');\nconst { strictEqual: equal } = require('node:assert');\n"), ("npm test",), _JAVASCRIPT_CAUSES),
    Project("jest", ("node",), _javascript("jest --verbose --colors", "const equal = (left, right) => expect(left).toBe(right);\n"), ("npm test",), _JAVASCRIPT_CAUSES, needs_modules=True),
    Project("eslint-jest", ("node",), _javascript("eslint --color src && jest --colors", "const equal = (left, right) => expect(left).toBe(right);\n") | {
        ".eslintrc.json": '{"root": true, "env": {"node": true, "es2022": true}, "extends": "eslint:recommended"}\n',
        "src/folder.js": "exports.total = (amounts) => amounts.length * taxRate;\nexports.rate = () => { const spare = 3; };\n",
    }, ("npx eslint --color src", "npx jest --colors"), ("'taxRate' is not defined", "'spare' is assigned a value but never used", *_JAVASCRIPT_CAUSES), needs_modules=True),
    Project("cargo-test", ("cargo",), _RUST, ("cargo test --offline",), ("left: 4137", "no rate for the island of Neuwerk")),
    Project("cargo-build", ("cargo",), _RUST_BROKEN, ("cargo build --offline",), ("expected `String`, found `usize`", "value borrowed here after move")),
    Project("javac", ("javac",), _JAVA, ("javac -verbose -d out shop/*.java 2>&1 | grep -v 'lib/modules' | grep -v '^.loading /modules'",), ("int cannot be converted to String", "symbol:   method closing()")),
)  # fmt: skip
