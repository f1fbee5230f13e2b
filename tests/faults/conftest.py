"""The harness's database servers, started on first use and stopped after the run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from tests.faults.postgres import MissingProgram
from tests.faults.world import Machines


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder starts real servers."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.integration)


@pytest.fixture(scope="session")
def machines() -> Iterator[Machines]:
    found = Machines()
    for start in (found.running_postgres, found.running_redis):
        try:
            start()
        except MissingProgram as missing:
            found.close()
            _without(str(missing))
    yield found
    found.close()


def _without(message: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)
