"""Tokens that a ratio allows, and the search for the selection whose output, counted as it is, comes closest."""

import math
from collections.abc import Callable, Sequence

from compression.choosing.selection import Selection

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
