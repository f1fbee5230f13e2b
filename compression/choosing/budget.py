"""Tokens that a ratio allows, and the output that comes closest to them: of whole units, or of units that are cut."""

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from compression.choosing.assembly import Assembler, renderer
from compression.choosing.selection import Selection, SelectionSettings
from compression.source.text import DENSE
from compression.source.token_counter import TokenCounter
from compression.source.units import DATA, Frame, Segmentation, Slice, join, merged

_ROUNDS = 6


def budget_for(original_tokens: int, target_ratio: float) -> int:
    """The most tokens whose ratio to `original_tokens`, computed as the receipt does, is at most the target."""
    budget = math.floor(original_tokens * target_ratio + 1e-6)
    while budget and budget / original_tokens > target_ratio:
        budget -= 1
    return budget


def choose(selection: Selection, budget: int) -> None:
    """The best units for a budget, by what they are estimated to cost."""
    selection.keep_protected(budget)
    selection.fill(budget)
    selection.improve(budget)
    selection.fill(budget)


def fit(selection: Selection, budget: int, measure: Callable[[Sequence[int]], int]) -> list[int]:
    """Kept units whose assembled text, which `measure` counts, is within `budget` and close under it.

    Only protected units can exceed the budget, when they do by themselves. Costs of units are estimates, since
    tokens may reach over the places where units meet; what was measured corrects them.
    """
    choose(selection, budget)
    best: tuple[int, list[int]] | None = None
    # Estimated costs from `high` on were too much; those up to `ceiling` are likely to fit.
    ceiling = high = math.inf
    for _ in range(_ROUNDS):
        kept = selection.kept()
        tokens = measure(kept)
        if tokens <= budget and (best is None or tokens > best[0]):
            best = (tokens, kept)
        limit = selection.cost + budget - tokens
        if tokens > budget:
            # The first estimate may be far off: marks and separators go with what is dropped.
            ceiling = min(ceiling, limit) if high < math.inf else ceiling
            high = min(high, selection.cost)
            changed = selection.shed(limit)
        else:
            changed = selection.fill(int(min(limit, ceiling)))
            if not changed and ceiling < limit:
                ceiling = (ceiling + min(high, limit)) / 2
                changed = selection.fill(int(min(limit, ceiling)))
        if not changed:
            break
    return best[1] if best is not None else _shrunk(selection, budget, measure)


def _shrunk(selection: Selection, budget: int, measure: Callable[[Sequence[int]], int]) -> list[int]:
    """Drop more and more units until the text fits or nothing is left to drop."""
    excess = 1
    while True:
        kept = selection.kept()
        tokens = measure(kept) if kept else 0
        if tokens <= budget:
            return kept
        limit = selection.cost - max(excess, tokens - budget)
        if not selection.shed(limit) and not selection.release_brackets():
            return kept
        excess *= 2


@dataclass(frozen=True, slots=True)
class Choice:
    """What units are chosen by, and how those are written that are chosen."""

    text: Segmentation
    scores: Sequence[float]
    preserve_order: bool = True
    mark_gaps: bool = False

    def slices(
        self,
        assembler: Assembler,
        budget: int,
        counter: TokenCounter,
        settings: SelectionSettings,
        costs: Sequence[int] | None = None,
    ) -> list[Slice]:
        """The best units, as many as fit. `costs` are the tokens of the assembler's pieces, counted unless given."""
        render = renderer(self.text, mark_gaps=self.mark_gaps)

        def assemble(kept: Sequence[int]) -> list[Slice]:
            if self.preserve_order:
                return assembler.assemble(kept)
            return assembler.assemble_by_relevance(kept, self.scores)

        def measure(kept: Sequence[int]) -> int:
            return counter.count(render(assemble(kept)))

        costs = counter.count_many(assembler.pieces()) if costs is None else costs
        kept = fit(Selection(self.text, self.scores, costs, settings), budget, measure)
        return assemble(kept) if kept else smallest_output(self.text, self.scores, budget, counter)


_CUT = re.compile(r"\s+|(?<=[^\x00-\u024f])")
_PROSE = frozenset({"sentence", "turn", "list_item", "heading", "line"})
_MOST_CUTS = 400


def smallest_output(
    text: Segmentation, scores: Sequence[float], budget: int, counter: TokenCounter
) -> list[Slice]:
    """Slices within `budget` that still say something; empty where there are none."""
    if text.is_conversation:
        return _empty(text)
    if budget < 1:
        return []
    if text.frames and text.frames[0].kind in DATA and text.frames[0].open == 0:
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


_CUT_KINDS = frozenset({"sentence", "turn", "list_item"})
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
        unit.kind in _CUT_KINDS
        and not unit.protected
        and at not in titles
        and (unit.frame is None or loose[unit.frame])
        for at, unit in enumerate(text.units)
    ]


def _holds_a_message_text(text: Segmentation, frame: Frame) -> bool:
    """The texts of messages and of their parts are prose like any other, whatever JSON is around them."""
    if text.origin is None or not text.is_conversation or frame.kind != "string":
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
