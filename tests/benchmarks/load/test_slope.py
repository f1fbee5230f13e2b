"""A slope with its interval: what grows is told from what wavers."""

from __future__ import annotations

import math
import random

import pytest

from benchmarks.load.slope import PARTS, slope

HOUR = [15.0 * look for look in range(240)]


def wavering(per_hour: float, seed: int) -> list[float]:
    """Readings of which each is like the one before, as memory is."""
    rng, error, found = random.Random(seed), 0.0, []
    for at in HOUR:
        error = 0.8 * error + rng.gauss(0, 1)
        found.append(100 + per_hour * at / 3600 + error)
    return found


@pytest.mark.parametrize("per_hour", [0.0, 8.0])
def test_the_truth_is_in_most_intervals(per_hour: float) -> None:
    found = [slope(HOUR, wavering(per_hour, seed)) for seed in range(200)]
    right = sum(abs(one.per_hour - per_hour) <= one.margin for one in found)
    # 190 are due; readings that resemble each other leave a few fewer.
    assert right >= 175
    assert sum(one.least > 0 for one in found) >= (190 if per_hour else 0)
    assert sum(one.least > 0 for one in found) <= (200 if per_hour else 15)


def test_a_line_has_its_own_slope_and_no_margin() -> None:
    found = slope(HOUR, [at / 1800 for at in HOUR])
    assert math.isclose(found.per_hour, 2, rel_tol=1e-9) and found.margin < 1e-9
    assert found.first < 0.1 and found.last > 1.9


def test_too_few_readings_have_none() -> None:
    few = [float(number) for number in range(2 * PARTS - 1)]
    with pytest.raises(ValueError, match="29 readings are too few"):
        slope(few, few)
