"""`pith archive` beside a service under load that dies itself: it may be killed at any moment, and loses, doubles and
changes nothing."""

from __future__ import annotations

import pytest

from tests.faults.faults import KillIngress
from tests.faults.run import Case, run_case
from tests.faults.world import Machines

SEED = 22


# On each of the databases. `tests/billing/archive` has kills after every step of it.
@pytest.mark.long
@pytest.mark.parametrize("seed", range(SEED, SEED + len(KillIngress.ledgers)))
async def test_an_archive_that_is_killed_under_load_goes_on_and_the_books_agree(
    machines: Machines, seed: int
) -> None:
    tally, ended = await run_case(Case(KillIngress, "JSON", seed), machines, archives=True)
    assert tally.violations == [], ended
    assert (tally.lost, tally.doubled, tally.found) == (0, 0, tally.expected)
