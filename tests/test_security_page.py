"""docs/security.md names tests; each of them exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/security.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/.-]+\.py)::(\w+)`", PAGE)))


@pytest.mark.parametrize(("path", "name"), NAMED, ids=[name for _, name in NAMED])
def test_a_test_that_the_page_names_exists(path: str, name: str) -> None:
    tree = ast.parse((ROOT / path).read_text())
    assert name in {
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_every_threat_of_the_table_has_a_test() -> None:
    rows = re.findall(r"^\| (?!threat|---)(.+) \|$", PAGE.split("## Not defended")[0], re.MULTILINE)
    assert len(rows) > 15
    assert not [row for row in rows if "::" not in row.rsplit("|", 1)[1]]


@pytest.mark.parametrize("secret", ["ops.admin_key_file", "demo.key_path", "tracing.headers_file", "pepper"])
def test_each_file_with_a_secret_is_on_the_page_of_rotation(secret: str) -> None:
    table = (ROOT / "docs/operations/rotation.md").read_text().split("\n## ")[0]
    assert secret in table


def test_whoever_finds_a_weakness_is_told_where_to_say_so_without_an_invented_address() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    assert "docs/security.md" in text and "Reporting" in text and "Supported" in text
    assert not re.search(r"\S+@\S+\.\w+", text)
