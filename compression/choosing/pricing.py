"""The order in which a conversation's units are worth their price, which falls as shells around them are paid for."""

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

# How much of the price counts: 0 ranks by score alone, 1 by score a token.
_PRICED = 0.75


def by_price(
    units: Iterable[int],
    scores: Sequence[float],
    costs: Sequence[int],
    needs: Sequence[tuple[int, ...]],
    group_costs: Sequence[int],
    group_needs: Sequence[tuple[int, ...]],
) -> list[int]:
    """`units`, the first to be taken first. `needs` are the groups that a unit brings in, `group_needs` what those do.

    Each step takes what scores most for the root of its price, once what was taken before is paid for. The work grows
    with the units times the depth of their groups.
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
    taken: dict[int, None] = {}
    while heap:
        _, unit = heappop(heap)
        if unit in taken:
            continue
        taken[unit] = None
        for group in chains[needs[unit]]:
            if group not in paid:
                paid.add(group)
                # What was dearer is cheaper now; the older, lower keys are met later and passed over.
                for other in members.pop(group, ()):
                    if other not in taken:
                        heappush(heap, (key(other), other))
    return list(taken)


def _chain(needs: tuple[int, ...], group_needs: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    found: dict[int, None] = {}
    waiting = list(needs)
    while waiting:
        group = waiting.pop()
        if group not in found:
            found[group] = None
            waiting.extend(group_needs[group])
    return tuple(found)
