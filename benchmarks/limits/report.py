"""The table that docs/limits.md shows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from benchmarks.limits.row import Cost, Measured

HEAD = "| what | bounded by | n | 2n | 4n, the bound | growth | memory at 4n |\n|---|---|---|---|---|---|---|"


def table(rows: Sequence[Measured]) -> str:
    return "\n".join([HEAD, *map(line, rows)])


def line(found: Measured) -> str:
    costs = [seconds(cost) for cost in found.costs]
    costs += [found.ended or "-"] * (3 - len(costs))
    growth = "-" if math.isnan(found.growth) else f"n^{found.growth:.2f}"
    memory = f"{found.costs[2].peak_mb:,.0f} MB" if len(found.costs) == 3 else "-"
    return f"| {found.row.name} | {found.row.bound} | {' | '.join(costs)} | {growth} | {memory} |"


def seconds(cost: Cost) -> str:
    return f"{1000 * cost.seconds:,.0f} ms" if cost.seconds < 1 else f"{cost.seconds:,.1f} s"
