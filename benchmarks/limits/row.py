"""One row of the table: something that a caller's bytes reach, what bounds it, and how to make it work."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Work = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Row:
    """`prepare(size)` builds a hostile input of that size and returns what is to be timed.

    `largest` is the size at the bound, in what `prepare` counts (bytes, words, sockets); `bound` says it in words, for
    a reader. `prepare` may load what it needs: that is not timed.
    """

    part: str
    what: str
    bound: str
    largest: int
    prepare: Callable[[int], Work]

    @property
    def name(self) -> str:
        return f"{self.part}: {self.what}"

    def sizes(self, scale: float) -> tuple[int, ...]:
        """n, 2n and 4n, which is the bound where `scale` is 1."""
        return tuple(max(1, int(self.largest * scale / share)) for share in (4, 2, 1))


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run took. `peak_mb`: memory over what the process held before."""

    size: int
    seconds: float
    peak_mb: float


@dataclass(frozen=True, slots=True)
class Measured:
    """A row with its costs, the smallest first. `ended` says why there are fewer than three: a deadline, a failure."""

    row: Row
    costs: Sequence[Cost]
    ended: str = ""

    @property
    def growth(self) -> float:
        """The exponent p of a cost that grows as size^p, from the first size to the last; NaN where one is missing."""
        if len(self.costs) < 3:
            return math.nan
        first, last = self.costs[0], self.costs[-1]
        return math.log(max(last.seconds, 1e-6) / max(first.seconds, 1e-6)) / math.log(last.size / first.size)
