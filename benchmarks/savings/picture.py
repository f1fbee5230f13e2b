"""Picture of the page's table: cost, tokens and waiting of sessions with compression, of those without."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from benchmarks.load import plots
from benchmarks.load.page import tables
from benchmarks.savings.tables import SHARES

PANELS = {"bill": "bill", "input tokens, median session": "input tokens, median session",
          "prefix-cache hit rate": "prefix-cache hit rate", "TTFT p50": "time to first token, p50"}  # fmt: skip


def picture(rows: Sequence[Sequence[str]]) -> plots.Picture:
    """Of the table's rows, under the head `SHARES`."""
    names = [f"{row[0]}, {row[1].replace('target_ratio', 'ratio')}" for row in rows]
    panels = [
        _panel(title, [row[SHARES.index(column)] for row in rows], names) for column, title in PANELS.items()
    ]
    return plots.Picture(_takeaway(rows), panels)


def _panel(title: str, cells: Sequence[str], names: Sequence[str]) -> plots.Panel:
    """A cell has what was measured and the ends of its interval; one without figures, as of a hit rate where nothing
    was cached, has no point."""
    figures = [[float(figure) for figure in re.findall(r"[0-9.]+", cell)] for cell in cells]
    measured = [(found[0], float(at)) for at, found in enumerate(figures) if found]
    spans = [(found[1], found[2], float(at)) for at, found in enumerate(figures) if len(found) > 2]
    return plots.Panel(title, "of without, with the 95% interval", "", {"measured": measured}, continuous_x=True,
                       rows=names, spans={"measured": spans})  # fmt: skip


def _takeaway(rows: Sequence[Sequence[str]]) -> str:
    bills = [float(row[SHARES.index("bill")].split()[0]) for row in rows]
    dearer, total = (
        sum(int(row[SHARES.index("sessions with a higher bill")].split(" of ")[at]) for row in rows) for at in (0, 1)
    )  # fmt: skip
    return (
        f"Compressed sessions cost {100 * min(bills):.0f} to {100 * max(bills):.0f}% of the same sessions whole; "
        f"{dearer} of {total:,} cost more"
    )


def from_page(page: Path) -> plots.Picture:
    [(_, rows)] = tables(page, *SHARES)
    return picture(rows)
