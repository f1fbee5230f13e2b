"""A small seeded part of the fault harness; `make test-faults` runs all of it."""

from __future__ import annotations

import pytest

from tests.faults.faults import FAULTS
from tests.faults.run import MODES, Case, run_case
from tests.faults.scarcity import SlowLedger, SlowRedis
from tests.faults.world import Machines

SEED = 7
# Each fault once: half of them in each mode, and on each database. `test_slow.py` has what is slow.
ONCE = [fault for fault in FAULTS if fault not in (SlowLedger, SlowRedis)]
CASES = [Case(fault, MODES[n % 2], SEED + n // 2 % 2) for n, fault in enumerate(ONCE)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_after_a_fault_every_completed_response_has_one_event_and_the_books_agree(
    machines: Machines, case: Case
) -> None:
    tally, ended = await run_case(case, machines)
    assert tally.violations == [], ended
    assert (tally.lost, tally.doubled, tally.found) == (0, 0, tally.expected)
    assert tally.completed >= 5, ended
