"""Keys over the admin API under load, while servers and the database die: what is posted stays within a key's limit at
every look, and the books add up."""

from __future__ import annotations

import pytest

from tests.faults.fault import Fault
from tests.faults.faults import ClockJumps, KillIngress, KillPostgres
from tests.faults.run import Case, run_case
from tests.faults.world import Machines

SEED = 22
# Each on the databases that it knows, in turn. `test_adjustments.py` has the others in `make test`.
CASES = [
    *(pytest.param(KillIngress, seed, marks=pytest.mark.long) for seed in (SEED, SEED + 1)),
    (KillPostgres, SEED),
    (ClockJumps, SEED),
]


@pytest.mark.parametrize(("fault", "seed"), CASES)
async def test_a_keys_limit_holds_and_its_balance_adds_up_whatever_dies(
    machines: Machines, fault: type[Fault], seed: int
) -> None:
    tally, ended = await run_case(Case(fault, "JSON", seed), machines, administers=True)
    assert tally.violations == [], ended
    assert (tally.lost, tally.doubled, tally.found) == (0, 0, tally.expected)
