"""Which windows run together: a batch costs its longest window times its size, so similar lengths are batched."""

from collections.abc import Sequence


def next_batch(lengths: Sequence[int], token_budget: int) -> list[int]:
    """Indices of the windows to run next; `lengths` are those that wait, the oldest first.

    The oldest is always among them, so none waits forever; the others are the nearest to it in length, as many as
    keep `longest * number` within the budget. A window longer than the budget runs alone.
    """
    order = sorted(range(len(lengths)), key=lambda index: (lengths[index], index))
    first = last = order.index(0)
    while True:
        grown = _grow(lengths, order, first, last, token_budget)
        if grown == (first, last):
            return order[first : last + 1]
        first, last = grown


def _grow(lengths: Sequence[int], order: list[int], first: int, last: int, budget: int) -> tuple[int, int]:
    """The range of `order` widened by one at the side that wastes less, or as it was where neither fits."""
    count, longest = last - first + 2, lengths[order[last]]
    below = longest - lengths[order[first - 1]] if first > 0 and longest * count <= budget else None
    above = None
    if last + 1 < len(order) and lengths[order[last + 1]] * count <= budget:
        above = (lengths[order[last + 1]] - longest) * (count - 1)
    if below is None and above is None:
        return first, last
    if above is None or (below is not None and below <= above):
        return first - 1, last
    return first, last + 1


def plan_batches(lengths: Sequence[int], token_budget: int) -> list[list[int]]:
    """All windows in batches, the longest first, `longest * number` of each within the budget."""
    order = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    batches: list[list[int]] = []
    for index in order:
        if batches and lengths[batches[-1][0]] * (len(batches[-1]) + 1) <= token_budget:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches
