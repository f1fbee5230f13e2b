"""The figures as pictures. matplotlib is a developer's package and slow to import: only drawing imports it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.load.sample import percentile

PANEL_INCHES = (4.6, 3.6)
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Panel:
    """One diagram: a line for each name."""

    title: str
    x: str
    y: str
    lines: Mapping[str, Points]
    log_x: bool = False
    log_y: bool = False


def distribution(title: str, x: str, samples: Mapping[str, Sequence[float]]) -> Panel:
    """The share of samples up to each time; empty ones are left out."""
    lines = {
        name: [(percentile(values, percent), percent) for percent in range(1, 100)]
        for name, values in samples.items()
        if values
    }
    return Panel(title, x, "percent of requests", lines, log_x=True)


def draw(path: Path, panels: Sequence[Panel]) -> Path:
    """The panels in a row, as PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    width, height = PANEL_INCHES
    figure, axes = pyplot.subplots(1, len(panels), figsize=(width * len(panels), height), squeeze=False)
    for axis, panel in zip(axes[0], panels, strict=True):
        for name, points in panel.lines.items():
            marker = "o" if len(points) < 20 else None
            axis.plot(*zip(*points, strict=True), marker=marker, markersize=3, label=name)
        axis.set(title=panel.title, xlabel=panel.x, ylabel=panel.y)
        axis.set_xscale("log" if panel.log_x else "linear")
        if panel.log_y:
            axis.set_yscale("log")
        else:
            # A line that varies by a percent must not look like a cliff.
            axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
        if panel.lines:
            axis.legend(fontsize=7)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
    return path
