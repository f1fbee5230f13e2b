"""Comparison of two arms over the same cases: McNemar's exact test, and intervals of a share and of a difference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import comb, sqrt

# Of a normal distribution, for 95%.
Z = 1.959964


@dataclass(frozen=True, slots=True)
class Pairs:
    """Cases by what came of them: in both arms right, only in the first, only in the second, in neither."""

    both: int
    only_first: int
    only_second: int
    neither: int

    @property
    def cases(self) -> int:
        return self.both + self.only_first + self.only_second + self.neither

    @property
    def difference(self) -> float:
        """Share right in the second less that in the first."""
        return (self.only_second - self.only_first) / self.cases

    def interval(self) -> tuple[float, float]:
        """Of the difference, 95%: Wald's with half a case added to each kind (Agresti and Min, Statistics in Medicine
        24, 2005), which holds its level with few cases and with none of a kind."""
        first, second, cases = self.only_first + 0.5, self.only_second + 0.5, self.cases + 2
        middle = (second - first) / cases
        half = Z * sqrt((first + second) - (second - first) ** 2 / cases) / cases
        return max(-1.0, middle - half), min(1.0, middle + half)

    def p_value(self) -> float:
        """Of McNemar's exact test, two-sided: were both arms alike, each case in which they differ would be a coin."""
        differing, fewer = self.only_first + self.only_second, min(self.only_first, self.only_second)
        tail = sum(comb(differing, count) for count in range(fewer + 1))
        return min(1.0, float(2 * tail / 2**differing))


def share_interval(count: int, of: int) -> tuple[float, float]:
    """Of a share, 95%: Wilson's (Journal of the American Statistical Association 22, 1927)."""
    middle, weight = (count + Z**2 / 2) / (of + Z**2), of + Z**2
    half = Z * sqrt(count * (of - count) / of + Z**2 / 4) / weight
    return max(0.0, middle - half), min(1.0, middle + half)


def pairs(first: Mapping[str, bool], second: Mapping[str, bool]) -> Pairs:
    """Of the cases that both have, by name."""
    return _counted((first[name], second[name]) for name in first if name in second)


def _counted(found: Iterable[tuple[bool, bool]]) -> Pairs:
    counts = {(True, True): 0, (True, False): 0, (False, True): 0, (False, False): 0}
    for pair in found:
        counts[pair] += 1
    return Pairs(*counts.values())
