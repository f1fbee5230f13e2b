"""Area under the ROC curve: how often a figure is higher where something happened than where it did not."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from benchmarks.answers.pairs import Z


@dataclass(frozen=True, slots=True)
class Sample:
    """`group` is what samples have in common that are not independent of each other, as those of one case."""

    group: str
    figure: float
    happened: bool


@dataclass(frozen=True, slots=True)
class Auroc:
    """`value` is .5 where the figure says nothing. The interval of 95% is nothing wide where the figure parts the
    samples without an exception."""

    value: float
    low: float
    high: float


def auroc(samples: Sequence[Sample]) -> Auroc | None:
    """With DeLong's variance for samples in groups (Obuchowski, Biometrics 53, 1997). None where there are not two
    groups, or all samples are alike in what happened."""
    events = [sample for sample in samples if sample.happened]
    others = [sample for sample in samples if not sample.happened]
    groups = {sample.group for sample in samples}
    if not events or not others or len(groups) < 2:
        return None
    above = _shares_below(events, others)
    below = [1 - share for share in _shares_below(others, events)]
    value = sum(above) / len(above)
    off = _off_by_group(events, above, value), _off_by_group(others, below, value)
    joined = [off[0][group] / len(events) + off[1][group] / len(others) for group in groups]
    half = Z * sqrt(len(groups) / (len(groups) - 1) * sum(each**2 for each in joined))
    return Auroc(value, max(0.0, value - half), min(1.0, value + half))


def _shares_below(samples: Sequence[Sample], others: Sequence[Sample]) -> list[float]:
    """For each sample the share of the others that have a lower figure; equal ones count half."""
    ordered = sorted(other.figure for other in others)
    return [
        (bisect_left(ordered, sample.figure) + bisect_right(ordered, sample.figure)) / (2 * len(ordered))
        for sample in samples
    ]


def _off_by_group(samples: Sequence[Sample], shares: Sequence[float], value: float) -> dict[str, float]:
    found = defaultdict[str, float](float)
    for sample, share in zip(samples, shares, strict=True):
        found[sample.group] += share - value
    return found
