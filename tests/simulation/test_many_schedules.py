"""Many schedules of the simulated ledger without a violation. One process runs a whole file, hence one of its own."""

from __future__ import annotations

import gc

import pytest

from tests.simulation.campaign import Findings, run_here

FIRST_SEED, MANY = 10**6, 300


# A server that dies leaves coroutines that nothing will start.
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_in_no_schedule_is_money_lost_or_spent_twice() -> None:
    findings = Findings()
    for result in run_here(range(FIRST_SEED, FIRST_SEED + MANY)):
        findings.add(result)
    # Those are reported here, and not in another test.
    gc.collect()
    assert not [(result.seed, result.violations) for result in findings.failed]
    # Something went on in them: of each way that a request can end, some did.
    ends = findings.outcomes
    assert ends["completed, persisted"] > 100
    assert min(ends["completed, degraded"], ends["released"], ends["refused: QuotaExceeded"]) > 10
