"""What comes out when the budget is too small for any unit: brackets that parse, or the head of the best sentence."""

import re
from collections.abc import Sequence
from itertools import islice

from compression.choosing.assembly import Assembler, Slice, join, merged
from compression.counting.counter import TokenCounter
from compression.source.units import Segmentation

_CUT = re.compile(r"\s+|(?<=[^\x00-\u024f])")
_PROSE = frozenset({"sentence", "turn", "list_item", "heading", "line"})
_MOST_CUTS = 400


def smallest_output(
    text: Segmentation, scores: Sequence[float], budget: int, counter: TokenCounter
) -> list[Slice]:
    """Slices within `budget` that still say something; empty where there are none."""
    if text.origin is not None:
        return _empty(text)
    if budget < 1:
        return []
    if text.frames and text.frames[0].kind == "json" and text.frames[0].open == 0:
        return _brackets(text, budget, counter)
    free = [index for index, unit in enumerate(text.units) if unit.kind in _PROSE and unit.frame is None]
    if not free:
        return []
    best = max(free, key=lambda index: (scores[index], -index))
    return _head(text, best, budget, counter)


def _empty(text: Segmentation) -> list[Slice]:
    """A conversation without messages, whatever the budget: less would be none."""
    around = [frame for frame in text.frames if frame.kind == "json" and text.units[frame.open].protected]
    return Assembler(text).assemble(sorted({end for frame in around for end in frame.ends}))


def _brackets(text: Segmentation, budget: int, counter: TokenCounter) -> list[Slice]:
    """The outermost brackets alone: empty, and JSON."""
    frame = text.frames[0]
    if frame.close is None:
        return []
    ends = (text.units[frame.open], text.units[frame.close])
    slices = merged([Slice(unit.start, unit.end) for unit in ends])
    return slices if counter.count(join(text.source, slices)) <= budget else []


def _head(text: Segmentation, index: int, budget: int, counter: TokenCounter) -> list[Slice]:
    """As many whole words from the start of the unit as fit, found by halving."""
    unit = text.units[index]
    found = islice(_CUT.finditer(text.source, unit.start + 1, unit.end), _MOST_CUTS)
    cuts = [cut.start() for cut in found]
    low, high = 0, len(cuts)
    while low < high:
        middle = (low + high + 1) // 2
        if counter.count(text.source[unit.start : cuts[middle - 1]]) <= budget:
            low = middle
        else:
            high = middle - 1
    return [Slice(unit.start, cuts[low - 1])] if low else []
