"""Picture of what each side reaches and takes by the number of clients: of a comparison, or of a page's table."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.load import plots
from benchmarks.load.page import tables

OURS, BASE = "pith", "bare vLLM"
Lines = Mapping[str, plots.Points]


def picture(kind: str, rates: Lines, cpu_ms: Lines, more: Sequence[plots.Panel] = ()) -> plots.Picture:
    """`kind` is JSON or SSE; `rates` are requests/s and `cpu_ms` of all processes, by clients, of every side."""
    panels = [
        plots.throughput("requests/s", rates),
        plots.Panel("CPU time a request, all processes", "clients", "ms", cpu_ms, log_x=True),
        *more,
    ]
    return plots.Picture(takeaway(kind, rates), panels)


def takeaway(kind: str, rates: Lines) -> str:
    if OURS not in rates or BASE not in rates:
        return f"{kind}: what {', '.join(rates)} reach"
    base = dict(rates[BASE])
    kept = [100 * rate / base[clients] for clients, rate in rates[OURS]]
    clients = [f"{clients:g}" for clients, _ in rates[OURS]]
    low, high = f"{min(kept):.0f}%", f"{max(kept):.0f}%"
    share = low if low == high else f"{low} to {high}"
    load = f"{clients[0]} to {clients[-1]} clients" if len(clients) > 1 else f"{clients[0]} clients"
    return f"{kind}: {OURS} reaches {share} of {BASE}'s requests/s at {load}"


def from_page(page: Path, kind: str) -> plots.Picture:
    """Of the table of performance.md whose cells are like "16.9, 65 ms"."""
    [(head, rows)] = tables(page, "bare vLLM", "pith", "LiteLLM, no database")
    rates, cpu_ms = (defaultdict[str, list[tuple[float, float]]](list) for _ in range(2))
    for name, *cells in rows:
        if found := re.fullmatch(rf"{kind}, (\d+) clients?", name):
            for side, cell in zip(head[1:], cells, strict=True):
                rate, cpu = cell.removesuffix(" ms").split(", ")
                rates[side].append((float(found[1]), float(rate)))
                cpu_ms[side].append((float(found[1]), float(cpu)))
    return picture(kind, rates, cpu_ms)
