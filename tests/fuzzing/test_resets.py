"""Some dozens of cut connections; `python -m tests.fuzzing resets` makes more."""

from __future__ import annotations

from tests.fuzzing.resets import run

CUTS = 60


async def test_a_connection_that_ends_at_any_byte_leaves_nothing_behind() -> None:
    cuts = await run(CUTS, seed=28)
    assert cuts.troubles == []
    assert (cuts.count, cuts.served) == (CUTS, CUTS // 10)
    assert cuts.sent and cuts.received
