"""Credits, adjustments and refunds under load, while servers and the database die: each once, and the books add up."""

from __future__ import annotations

import pytest

from tests.faults.fault import Fault
from tests.faults.faults import ClockJumps, HookFails, KillIngress, KillPostgres
from tests.faults.run import Case, run_case
from tests.faults.world import Machines

SEED = 15
# Each on the databases that it knows, in turn. `test_administered_keys.py` has the others in `make test`.
CASES = [
    (KillIngress, SEED),
    (HookFails, SEED),
    *(
        pytest.param(fault, seed, marks=pytest.mark.long)
        for fault, seed in ((KillIngress, SEED + 1), (KillPostgres, SEED), (ClockJumps, SEED))
    ),
]


@pytest.mark.parametrize(("fault", "seed"), CASES)
async def test_every_adjustment_is_made_once_whatever_dies(
    machines: Machines, fault: type[Fault], seed: int
) -> None:
    tally, ended = await run_case(Case(fault, "JSON", seed), machines, adjusts=True)
    assert tally.violations == [], ended
    assert (tally.lost, tally.doubled, tally.found) == (0, 0, tally.expected)
