"""Slope of a figure over time with its 95% interval: whether what wavers also grows."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

# Neighbouring readings resemble one another, so each part of the run counts once, by its median: the rest of the error
# is then near enough to independent for Student's interval.
PARTS = 15
# Student's t for 95% with PARTS - 2 degrees of freedom.
STUDENT = 2.160


@dataclass(frozen=True, slots=True)
class Slope:
    """Units an hour, and how far the truth may lie to either side."""

    per_hour: float
    margin: float
    first: float
    last: float

    @property
    def least(self) -> float:
        return self.per_hour - self.margin

    def __str__(self) -> str:
        return f"{self.per_hour:+.3g} ± {self.margin:.2g}"


def slope(times_s: Sequence[float], values: Sequence[float]) -> Slope:
    """The least-squares line through the medians of so many parts of equal length. Raises `ValueError` for fewer
    readings than twice the parts."""
    if len(values) < 2 * PARTS:
        raise ValueError(f"{len(values)} readings are too few for a slope: it takes {2 * PARTS}")
    edges = [round(number * len(values) / PARTS) for number in range(PARTS + 1)]
    spans = [slice(begin, end) for begin, end in pairwise(edges)]
    hours = [statistics.median(times_s[span]) / 3600 for span in spans]
    medians = [statistics.median(values[span]) for span in spans]
    line = statistics.linear_regression(hours, medians)
    errors = [value - line.intercept - line.slope * hour for hour, value in zip(hours, medians, strict=True)]
    mean = statistics.fmean(hours)
    spread = sum((hour - mean) ** 2 for hour in hours)
    deviation = (sum(error**2 for error in errors) / (PARTS - 2) / spread) ** 0.5
    return Slope(line.slope, STUDENT * deviation, medians[0], medians[-1])
