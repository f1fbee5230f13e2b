"""Draws the pictures of the docs anew, without measuring anything: `python -m benchmarks.redraw docs/*.png`.

Where the page beside a picture has its figures in tables, these are drawn; a picture of distributions is drawn of the
figures that it carries itself (`benchmarks.load.plots.read`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks import prefix_cache, scaling
from benchmarks.answers import report as answers
from benchmarks.load import plots
from benchmarks.load.page import tables
from benchmarks.overhead import picture as overhead
from benchmarks.savings import picture as savings

SEEN = "other questions seen"
LAST = "last quarter"


def calibration(page: Path) -> plots.Picture:
    """Of calibration.md: a panel for each kind of model."""
    text = page.read_text(encoding="utf-8")
    kinds = re.findall(r"^## `([\w ]+)`$", text, re.MULTILINE)
    errors = re.findall(
        r"^Calibration error with all suites weighted alike: ([0-9.]+)\.$", text, re.MULTILINE
    )
    found = {
        kind: {SEEN: [(_share(said), _share(kept)) for _, said, kept in rows]}
        for kind, (_, rows) in zip(kinds, tables(page, "of outputs", "kept"), strict=True)
    }
    shares = {
        kind: {SEEN: [_share(of_all) for of_all, *_ in rows]}
        for kind, (_, rows) in zip(kinds, tables(page, "of outputs", "kept"), strict=True)
    }
    return plots.calibrations(found, shares, dict(zip(kinds, map(float, errors), strict=True)))


def prefix(page: Path) -> plots.Picture:
    """Of performance.md, where the routings are in code type."""
    [(_, rows)] = tables(page, "routing", "turns/s")
    return prefix_cache.picture([[cell.strip("`") for cell in row] for row in rows])


def soak(page: Path) -> plots.Picture:
    """Of performance.md: a process in a row, its second quarter and its last; a cell without both has no mark."""
    [(_, rows)] = tables(page, "process", "memory, MiB")
    names, rate = [], ""
    for run, process, *_ in rows:
        rate = run.split()[0] if run else rate
        names.append(f"{process}, {rate}/s")
    memory = _quarters("memory, MiB", [held for _, _, held, *_ in rows], names)
    sockets = _quarters(
        "TCP sockets at once (at 400/s with open files)", [opened for _, _, _, opened, *_ in rows], names
    )
    grown = max(end - start for start, end, _ in memory.spans[LAST])
    title = (
        f"From the second quarter of a run to its last, no process's memory grew by more than {grown:.1f} MiB"
    )
    return plots.Picture(title, [memory, sockets])


def _quarters(title: str, cells: Sequence[str], names: Sequence[str]) -> plots.Panel:
    found = [re.search(r"([0-9.]+) → ([0-9.]+)", cell) for cell in cells]
    spans = [(float(one[1]), float(one[2]), float(at)) for at, one in enumerate(found) if one]
    marks = {
        "second quarter": [(start, at) for start, _, at in spans],
        LAST: [(end, at) for _, end, at in spans],
    }
    return plots.Panel(title, "", "", marks, continuous_x=True, rows=names, spans={LAST: spans})


def _share(cell: str) -> float:
    return float(cell.removesuffix("%")) / 100


# The picture's name, the page that has its figures, and how they are read.
OF_TABLES: Mapping[str, tuple[str, Callable[[Path], plots.Picture]]] = {
    "performance-json.png": ("performance.md", lambda page: overhead.from_page(page, "JSON")),
    "performance-sse.png": ("performance.md", lambda page: overhead.from_page(page, "SSE")),
    "performance-prefix-cache.png": ("performance.md", prefix),
    "performance-soak.png": ("performance.md", soak),
    "scaling.png": ("scaling.md", scaling.from_page),
    "calibration.png": ("calibration.md", calibration),
    "savings.png": ("savings.md", savings.from_page),
    "answers.png": ("answers.md", answers.from_page),
}


def picture_of(path: Path) -> plots.Picture:
    """Raises `KeyError` for a picture that carries no figures and that no page has in tables."""
    if path.name in OF_TABLES:
        page, read = OF_TABLES[path.name]
        return read(path.with_name(page))
    return plots.read(path)


def main() -> None:
    for path in map(Path, sys.argv[1:]):
        found = picture_of(path)
        print(plots.draw(path, found.panels, title=found.title))


if __name__ == "__main__":
    main()
