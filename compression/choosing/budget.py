"""Tokens that a ratio allows, the selection that comes closest to them, and the least output where nothing fits."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from compression.choosing.assembly import Assembler, renderer
from compression.choosing.selection import Selection, SelectionSettings
from compression.source.token_counter import TokenCounter
from compression.source.units import Segmentation, Slice, join, merged

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
