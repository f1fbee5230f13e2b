"""Outputs in which a unit may be kept in part: which may be cut, how far, and an output within the budget."""

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from compression.choosing.assembly import Assembler, renderer
from compression.choosing.budget import Choice
from compression.source.text import DENSE
from compression.source.token_counter import TokenCounter
from compression.source.units import Frame, Segmentation, Slice, merged

_HALVINGS = 60
# A score below this share of the highest counts as 0.
_LEAST = 1e-9


def share_budget(scores: Sequence[float], tokens: Sequence[int], total: int) -> list[int]:
    """The number of its tokens that each unit may keep: a share in proportion to its score, at most all of them.

    The shares are as large as `total` allows, and sum to no more. A unit of score 0 keeps nothing, unless there is
    room for everything.
    """
    if len(scores) != len(tokens):
        raise ValueError(f"scores: {len(scores)} for {len(tokens)} units")
    sizes = np.asarray(tokens, np.float64)
    if sizes.sum() <= total:
        return list(tokens)
    weights = np.clip(np.asarray(scores, np.float64), 0.0, None)
    if total <= 0 or not weights.any():
        return [0] * len(sizes)
    weights /= weights.max()
    low, high = 0.0, 1.0 / max(weights[weights > 0].min(), _LEAST)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _shares(weights, sizes, middle).sum() <= total else (low, middle)
    return [int(share) for share in _shares(weights, sizes, low)]


def _shares(weights: NDArray[np.float64], sizes: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    # The halvings come near the right scale from below: a hair more, or whole numbers would be missed by one.
    found: NDArray[np.float64] = np.floor(np.minimum(weights * scale, 1.0) * sizes + 1e-6)
    return found


_PROSE = frozenset({"sentence", "turn", "list_item"})
_LOOSE_FRAMES = frozenset({"turn", "tag"})
_DENSE = re.compile(f"[{DENSE}]")
_LEAST_SHARE = 0.3


def may_be_cut(text: Segmentation) -> list[bool]:
    """For each unit, whether it is prose that nothing protects: not a heading, nor in JSON, code, a table or a log."""
    loose: list[bool] = []
    for frame in text.frames:
        # A frame comes after the one around it.
        is_free = frame.parent is None or loose[frame.parent]
        is_loose = frame.kind in _LOOSE_FRAMES and is_free
        loose.append(is_loose or _holds_a_message_text(text, frame))
    titles = {document.title for document in text.documents}
    return [
        unit.kind in _PROSE
        and not unit.protected
        and at not in titles
        and (unit.frame is None or loose[unit.frame])
        for at, unit in enumerate(text.units)
    ]


def _holds_a_message_text(text: Segmentation, frame: Frame) -> bool:
    """The texts of messages and of their parts are prose like any other, whatever JSON is around them."""
    if text.origin is None or frame.kind != "string":
        return frame.kind == "message"
    opening = text.units[frame.open]
    return not text.origin.is_in_text(opening.start, opening.end)


class CutAssembler(Assembler):
    """Assembles units of which `parts` says what is left; units that it does not name are whole."""

    def __init__(self, text: Segmentation, parts: Mapping[int, Sequence[Slice]]) -> None:
        super().__init__(text)
        self._source = text.source
        self._units = text.units
        self._parts = parts

    def of(self, unit: int) -> Sequence[Slice]:
        """The kept parts of a unit where it is kept at all."""
        return self._parts.get(unit) or [Slice(self._units[unit].start, self._units[unit].end)]

    def pieces(self) -> list[str]:
        gaps = [self.gap_before(unit) for unit in range(len(self._units))]
        return [self._text.raw([gap, *self.of(unit)]) for unit, gap in enumerate(gaps)]

    def assemble(self, kept: Sequence[int]) -> list[Slice]:
        slices: list[Slice] = []
        for position, unit in enumerate(kept):
            if position:
                slices.append(self.between(kept[position - 1], unit))
            slices.extend(self.of(unit))
        return apart(self._source, merged(slices))


def apart(source: str, slices: Sequence[Slice]) -> list[Slice]:
    """The same slices, in source order, with a space of the source taken in where two words would run together."""
    result: list[Slice] = []
    for start, end in slices:
        if result and start > result[-1].end and _fuse(source[result[-1].end - 1], source[start]):
            if source[start - 1].isspace():
                start -= 1
            elif source[result[-1].end].isspace():
                result[-1] = Slice(result[-1].start, result[-1].end + 1)
        result.append(Slice(start, end))
    return merged(result)


def _fuse(before: str, after: str) -> bool:
    if _DENSE.match(before) and _DENSE.match(after):
        return False
    return before.isalnum() and after.isalnum()


def plan_cuts(
    text: Segmentation, scores: Sequence[float], costs: Sequence[int], budget: int
) -> dict[int, int]:
    """Units that are worth keeping in part, and how many tokens each may keep: more the better it scores.

    A unit that this does not name is to be kept whole or not at all.
    """
    free = budget - sum(cost for unit, cost in zip(text.units, costs, strict=True) if unit.protected)
    weights = [0.0 if unit.protected else score for unit, score in zip(text.units, scores, strict=True)]
    shares = share_budget(weights, costs, free)
    # A sentence cut to shreds is unreadable: its share goes to better ones, unless all score alike.
    legible = [
        weight if share >= _LEAST_SHARE * cost else 0.0
        for weight, share, cost in zip(weights, shares, costs, strict=True)
    ]
    if any(legible):
        shares = share_budget(legible, costs, free)
    cuttable = may_be_cut(text)
    return {
        unit: share
        for unit, (share, cost) in enumerate(zip(shares, costs, strict=True))
        if cuttable[unit] and 0 < share < cost
    }


def parts_of(text: Segmentation, spans: Sequence[tuple[int, int]]) -> dict[int, list[Slice]]:
    """The spans, in source order and each within one unit, by their unit."""
    starts = [unit.start for unit in text.units]
    parts: dict[int, list[Slice]] = {}
    for start, end in spans:
        parts.setdefault(bisect_right(starts, start) - 1, []).append(Slice(start, end))
    return parts


def thin_out(choice: Choice, spans: Sequence[Slice], budget: int, counter: TokenCounter) -> list[Slice]:
    """All the spans, which may cross units, where they fit; otherwise without those of the lowest-scoring units."""
    source, units = choice.text.source, choice.text.units
    render = renderer(choice.text, mark_gaps=choice.mark_gaps)
    starts = [unit.start for unit in units]
    owners = [max(0, bisect_right(starts, span.start) - 1) for span in spans]
    order = sorted(set(owners), key=lambda unit: (-choice.scores[unit], unit))

    def left(number: int) -> list[Slice]:
        kept = set(order[:number])
        chosen = [span for span, owner in zip(spans, owners, strict=True) if owner in kept]
        return apart(source, merged(chosen))

    low, high = 0, len(order)
    while low < high:
        middle = (low + high + 1) // 2
        if counter.count(render(left(middle))) <= budget:
            low = middle
        else:
            high = middle - 1
    return left(low)
