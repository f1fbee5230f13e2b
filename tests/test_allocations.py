"""Short runs of `tests.allocations`: nothing is left by requests, and what is left would be found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.allocations import complaints, measured

REQUESTS, WARM_UP, WITHIN_S = 450, 150, 600.0


async def test_requests_leave_nothing_in_memory(tmp_path: Path) -> None:
    readings, counted = await measured(tmp_path, REQUESTS, WARM_UP, WITHIN_S)
    assert complaints(readings) == []
    assert {kind.split()[0] for kind in counted.outcomes} == {"JSON", "SSE", "left", "compress", "refused"}
    assert counted.total == REQUESTS


@pytest.mark.long
async def test_what_each_request_leaves_is_found_by_the_line_that_made_it(tmp_path: Path) -> None:
    readings, _ = await measured(tmp_path, 3 * REQUESTS, WARM_UP, WITHIN_S, forgets=False)
    # The fake engine remembers what it was asked.
    assert any("models/" in line or "serve/" in line for line in complaints(readings))
