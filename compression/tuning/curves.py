"""How much evidence is kept at each ratio, with intervals, and which ratio that recommends."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from compression.tuning.observing import RATIOS, Observed

_RESAMPLES = 2000
_SEED = 20261122


@dataclass(frozen=True, slots=True)
class Point:
    """Of all questions at one target ratio: the share that kept its evidence with a 95% interval, from 0 to 1, and the
    mean ratio that came out."""

    target_ratio: float
    kept: float
    low: float
    high: float
    ratio: float


def curve(found: Sequence[Observed]) -> list[Point]:
    """One point a ratio; the intervals are of the bootstrap over questions, drawn with a fixed seed."""
    kept = np.stack([one.kept for one in found]).astype(np.float64)
    ratios = np.stack([one.ratios for one in found]).mean(axis=0)
    low, high = interval(kept)
    return [
        Point(target, float(share), float(low[at]), float(high[at]), float(ratios[at]))
        for at, (target, share) in enumerate(zip(RATIOS, kept.mean(axis=0), strict=True))
    ]


def interval(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The 95% interval of the mean over the first axis: two rows, low and high."""
    rng = np.random.default_rng(_SEED)
    drawn = rng.integers(len(values), size=(_RESAMPLES, len(values)))
    means = np.stack([values[chosen].mean(axis=0) for chosen in drawn])
    bounds: NDArray[np.float64] = np.quantile(means, (0.025, 0.975), axis=0)
    return bounds


def recommended(points: Sequence[Point], wanted: float) -> Point | None:
    """The smallest ratio from which on the share kept is at least `wanted`; None where none is."""
    enough = None
    for point in reversed(points):
        if point.kept < wanted:
            break
        enough = point
    return enough
