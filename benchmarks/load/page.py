"""Tables that a page of the docs has already."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

Rows = list[list[str]]


def tables(page: Path, *cells: str) -> list[tuple[list[str], Rows]]:
    """Head and rows of every table whose head has these cells, in the order of the page."""
    lines = page.read_text(encoding="utf-8").splitlines()
    found = []
    for is_table, block in groupby(lines, key=lambda line: line.startswith("|")):
        if is_table:
            head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block]
            if set(cells) <= set(head):
                found.append((head, rows))
    return found
