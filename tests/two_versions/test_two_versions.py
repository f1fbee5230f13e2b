"""A small part of `python -m tests.two_versions`, where this clone has the commit before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulation.campaign import run_here
from tests.simulation.put_back import BUGS
from tests.simulation.server import Parts
from tests.two_versions.before import LEDGER_BEFORE, ROOT, NoSuchCommit, code_of, revision
from tests.two_versions.simulated import parts_of_both


@pytest.fixture(scope="module")
def before() -> Iterator[Path]:
    try:
        with code_of(LEDGER_BEFORE) as code:
            if revision(code) != revision(ROOT):
                pytest.skip(
                    "LEDGER_BEFORE is of another revision of the ledger: set it to this one's first commit"
                )
            yield code
    except NoSuchCommit as error:
        pytest.skip(str(error))


def test_servers_of_both_versions_keep_the_books_in_simulation(before: Path) -> None:
    parts = parts_of_both(before)
    assert parts.before is not None and parts.ledger is not parts.before.ledger
    for result in run_here(range(1, 21), parts=parts):
        assert result.violations == [], result.seed


def test_a_bug_of_one_of_the_versions_alone_is_found() -> None:
    bug, expected = BUGS["a chat and its compression are settled apart"]
    found = [line for result in run_here(range(1, 41), parts=Parts(before=bug)) for line in result.violations]
    assert any(expected in line for line in found)
