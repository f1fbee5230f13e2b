"""What each client did in a run of the tests: the table of docs/clients.md is made from it."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from tests.clients.environments import FOLDER, pinned

RECORD = FOLDER / "record.json"
HERE = Path(__file__).parent
WORKS = "works"


class Row(NamedTuple):
    """One test of one client: the package, its version, what was done with it and what came of it."""

    package: str
    version: str
    done: str
    result: str


def rows_of_tests(result: str = WORKS) -> list[Row]:
    """The row of every test in this folder that says `@pytest.mark.client(NAME, what is done)`, by package."""
    modules = (
        importlib.import_module(f"tests.clients.{path.stem}") for path in sorted(HERE.glob("test_*.py"))
    )
    rows = (Row(*pinned(name), done, result) for module in modules for name, done in _marked(module))
    return sorted(rows, key=lambda row: row.package.removeprefix("@"))


def _marked(module: ModuleType) -> Iterator[tuple[str, str]]:
    for value in vars(module).values():
        for mark in getattr(value, "pytestmark", ()):
            if mark.name == "client":
                yield mark.args


def write(row: Row) -> None:
    """Put this row in the place of an earlier one of the same client and deed."""
    rows = [each for each in read() if (each.package, each.done) != (row.package, row.done)]
    RECORD.write_text(json.dumps([*rows, row], indent=1) + "\n")


def read() -> list[Row]:
    return [Row(*each) for each in json.loads(RECORD.read_text())] if RECORD.is_file() else []
