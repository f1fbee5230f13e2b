"""Map from a view of the input to the input: what the view leaves out of it, and what it decodes."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from compression.source.units import Slice, join, merged


class Edit(NamedTuple):
    """`source[start:end]` is left out of a view, or decoded there as the one character `text`."""

    start: int
    end: int
    text: str = ""

    def moved(self, offset: int) -> Edit:
        """The same edit of a text that begins with `offset` characters more."""
        return Edit(self.start + offset, self.end + offset, self.text)


def _offsets() -> array[int]:
    return array("q")


@dataclass(slots=True)
class Origin:
    """Maps slices of a view to slices of `raw`, the input. The view differs from it in two ways only.

    An escape is one character in the view and several in the input: it is never cut. White space between the marks of
    JSON, a page's markup and a printed log's colours are in the input and not in the view: a slice of the view that
    runs over them is two of the input.

    `escapes` are the places of decoded characters in the view, `escaped` how many characters more than the view the
    input has up to the end of each. `gaps` are places in the view before which the input has more, `skipped` how much
    up to and with each. `texts` are where each decoded text begins and ends in the view. All are in rising order.
    `outer`: `raw` is a view itself, as a conversation's whose texts have markup. `is_markup`: what is left out is
    markup of a page or of a printed log, whose lines' times are escapes; all of the view is text.
    """

    raw: str
    escapes: array[int] = field(default_factory=_offsets)
    escaped: array[int] = field(default_factory=_offsets)
    gaps: array[int] = field(default_factory=_offsets)
    skipped: array[int] = field(default_factory=_offsets)
    texts: array[int] = field(default_factory=_offsets)
    outer: Origin | None = None
    is_markup: bool = False

    @property
    def input(self) -> str:
        return self.raw if self.outer is None else self.outer.input

    @property
    def is_conversation(self) -> bool:
        return not self.is_markup or (self.outer is not None and self.outer.is_conversation)

    def start(self, at: int) -> int:
        """The place in the input where the character of the view at `at` begins."""
        own = self.raw_start(at)
        return own if self.outer is None else self.outer.start(own)

    def end(self, at: int) -> int:
        """The place in the input where what ends at `at` in the view ends."""
        own = self.raw_end(at)
        return own if self.outer is None else self.outer.end(own)

    def raw_start(self, at: int) -> int:
        return at + self._decoded_before(at) + _last(self.skipped, bisect_right(self.gaps, at))

    def raw_end(self, at: int) -> int:
        return at + self._decoded_before(at) + _last(self.skipped, bisect_left(self.gaps, at))

    def _decoded_before(self, at: int) -> int:
        return _last(self.escaped, bisect_left(self.escapes, at))

    def is_in_text(self, start: int, end: int) -> bool:
        """True where a stretch of the view lies within one decoded text, its very ends included."""
        if self.outer is not None:
            return self.outer.is_in_text(self.raw_start(start), self.raw_end(end))
        if self.is_markup:
            return True
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
                    found.append(Slice(self.raw_start(low), self.raw_end(high)))
        return merged(found) if self.outer is None else self.outer.slices(merged(found))

    def text(self, pieces: Sequence[tuple[int, int]]) -> str:
        """The text of the input in place of `pieces` of the view."""
        return join(self.input, self.slices(pieces))


def _last(sums: array[int], count: int) -> int:
    return sums[count - 1] if count else 0
