"""Units in the order of their worth for their price, where keeping one brings in what frames it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush

from compression.source.units import DATA, Segmentation


def chosen_with_frame(text: Segmentation) -> dict[int, int]:
    """Units that a message's or a record's frame is made of and that may be chosen for themselves, by its number."""
    return {
        unit: number
        for number, frame in enumerate(text.frames)
        if frame.kind == "message" or frame.kind in DATA
        for unit in frame.ends
        if text.units[unit].kind != "bracket"
    }


# How much of the price counts: 0 ranks by score alone, 1 by score a token.
_PRICED = 0.75


def by_price(
    units: Iterable[int],
    scores: Sequence[float],
    costs: Sequence[int],
    needs: Sequence[tuple[int, ...]],
    group_costs: Sequence[int],
    group_needs: Sequence[tuple[int, ...]],
) -> Iterator[int]:
    """`units`, the first to be taken first. `needs` are the groups that a unit brings in, `group_needs` what those do.

    Each step takes what scores most for the root of its price, once what was taken before is paid for. `scores` may be
    lowered between two steps. The work grows with the units times the depth of their groups.
    """
    chains: dict[tuple[int, ...], tuple[int, ...]] = {}
    members: dict[int, list[int]] = {}
    waiting = list(units)
    for unit in waiting:
        chain = chains.setdefault(needs[unit], _chain(needs[unit], group_needs))
        for group in chain:
            members.setdefault(group, []).append(unit)
    paid: set[int] = set()

    def key(unit: int) -> float:
        missing = sum(group_costs[group] for group in chains[needs[unit]] if group not in paid)
        return float(-scores[unit] / max(1, costs[unit] + missing) ** _PRICED)

    heap = [(key(unit), unit) for unit in waiting]
    heapify(heap)
    taken: set[int] = set()
    while heap:
        before, unit = heappop(heap)
        if unit in taken:
            continue
        now = key(unit)
        if now > before:
            heappush(heap, (now, unit))
            continue
        taken.add(unit)
        yield unit
        for group in chains[needs[unit]]:
            if group not in paid:
                paid.add(group)
                # What was dearer is cheaper now; the older, lower keys are met later and passed over.
                for other in members.pop(group, ()):
                    if other not in taken:
                        heappush(heap, (key(other), other))


def _chain(needs: tuple[int, ...], group_needs: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    found: dict[int, None] = {}
    waiting = list(needs)
    while waiting:
        group = waiting.pop()
        if group not in found:
            found[group] = None
            waiting.extend(group_needs[group])
    return tuple(found)
