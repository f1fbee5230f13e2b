"""Where the characters of a view are in the input that it was made from."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from compression.source.slices import Slice, join, merged


def _offsets() -> array[int]:
    return array("q")


@dataclass(slots=True)
class Origin:
    """Maps slices of a view to slices of `raw`, the input. The view differs from it in two ways only.

    An escape is one character in the view and several in the input: it is never cut. White space between the marks of
    JSON is in the input and not in the view: a slice of the view that runs over it is two of the input.

    `escapes` are the places of decoded characters in the view, `escaped` how many characters more than the view the
    input has up to the end of each. `gaps` are places in the view before which the input has more, `skipped` how much
    up to and with each. `texts` are where each decoded text begins and ends in the view. All are in rising order.
    """

    raw: str
    escapes: array[int] = field(default_factory=_offsets)
    escaped: array[int] = field(default_factory=_offsets)
    gaps: array[int] = field(default_factory=_offsets)
    skipped: array[int] = field(default_factory=_offsets)
    texts: array[int] = field(default_factory=_offsets)

    def start(self, at: int) -> int:
        """Where in the input the character of the view at `at` begins."""
        return at + self._decoded_before(at) + _last(self.skipped, bisect_right(self.gaps, at))

    def end(self, at: int) -> int:
        """Where in the input what ends at `at` in the view ends."""
        return at + self._decoded_before(at) + _last(self.skipped, bisect_left(self.gaps, at))

    def _decoded_before(self, at: int) -> int:
        return _last(self.escaped, bisect_left(self.escapes, at))

    def is_in_text(self, start: int, end: int) -> bool:
        """Whether a stretch of the view lies within one decoded text, its very ends included."""
        number = bisect_right(self.texts, start) - 1
        if number >= 0 and number % 2 and self.texts[number] == start:
            number -= 1  # the end of a text, which the next one cannot begin at
        return number >= 0 and number % 2 == 0 and end <= self.texts[number + 1]

    def slices(self, pieces: Sequence[tuple[int, int]]) -> list[Slice]:
        """The slices of the input that `pieces` of the view are, in the same order; those that touch are one."""
        found: list[Slice] = []
        for start, end in pieces:
            first, last = bisect_right(self.gaps, start), bisect_left(self.gaps, end)
            cuts = [start, *self.gaps[first:last], end] if first < last else (start, end)
            for low, high in pairwise(cuts):
                if low < high:
                    found.append(Slice(self.start(low), self.end(high)))
        return merged(found)

    def text(self, pieces: Sequence[tuple[int, int]]) -> str:
        """What the input has in place of `pieces` of the view."""
        return join(self.raw, self.slices(pieces))


def _last(sums: array[int], count: int) -> int:
    return sums[count - 1] if count else 0
