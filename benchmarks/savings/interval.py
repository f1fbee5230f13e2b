"""A figure with the interval that the choice of sessions leaves it: bootstrap over groups that belong together."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

DRAWS = 1000
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure, and the ends of its 95% interval."""

    value: float
    low: float
    high: float

    def shown(self, digits: int = 3) -> str:
        return f"{self.value:,.{digits}f} ({self.low:,.{digits}f} to {self.high:,.{digits}f})"


def bootstrap(
    groups: Sequence[Sequence[Item]], figure: Callable[[Sequence[Item]], float], *, draws: int = DRAWS
) -> Estimate:
    """`figure` of all items, and of as many groups drawn with replacement: items of one group (trials of one task)
    resemble each other, so they are drawn together."""
    rng = random.Random("pith savings")
    found = sorted(
        figure([item for group in rng.choices(groups, k=len(groups)) for item in group]) for _ in range(draws)
    )
    low, high = found[int(0.025 * draws)], found[min(draws - 1, int(0.975 * draws))]
    return Estimate(figure([item for group in groups for item in group]), low, high)
