"""The figures as pictures. matplotlib is a developer's package and slow to import: only drawing imports it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.load.sample import Run, percentile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

PANEL_INCHES = (4.6, 3.6)
PANELS_A_ROW = 4
CROWD = 7  # lines whose names would cover a panel
TIMES: Mapping[str, Callable[[Run], list[float]]] = {
    "latency": Run.latencies_ms, "TTFT": Run.ttfts_ms, "between events": Run.gaps_ms
}  # fmt: skip
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
    return Panel(title, x, "percent", lines, log_x=True)


def times(runs: Mapping[str, Sequence[Run]], *, of: str = "") -> list[Panel]:
    """Distributions of the requests' latency, TTFT and time between events."""
    return [
        distribution(
            f"{title}{of}",
            "ms",
            {name: [ms for run in some for ms in values(run)] for name, some in runs.items()},
        )
        for title, values in TIMES.items()
    ]


def throughput(what: str, lines: Mapping[str, Points]) -> Panel:
    """Against the number of clients."""
    return Panel("throughput", "clients", what, lines, log_x=True)


def draw(path: Path, panels: Sequence[Panel], *, dpi: int = 130) -> Path:
    """The panels that have a line, as PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    drawn = [panel for panel in panels if any(panel.lines.values())]
    width, height = PANEL_INCHES
    columns, rows = min(len(drawn), PANELS_A_ROW), -(-len(drawn) // PANELS_A_ROW)
    figure, axes = pyplot.subplots(rows, columns, figsize=(width * columns, height * rows), squeeze=False)
    for axes_of_one, panel in zip(axes.flat, drawn, strict=False):
        _draw_panel(axes_of_one, panel)
    for unused in axes.flat[len(drawn) :]:
        unused.remove()
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=dpi)
    pyplot.close(figure)
    return path


def _draw_panel(axes: Axes, panel: Panel) -> None:
    for name, points in panel.lines.items():
        if points:
            marker = "o" if len(points) < 20 else None
            axes.plot(*zip(*points, strict=True), marker=marker, markersize=3, label=name)
    axes.set(title=panel.title, xlabel=panel.x, ylabel=panel.y)
    if panel.log_x:
        axes.set_xscale("log")
        _number(axes.xaxis)
    if panel.log_y:
        axes.set_yscale("log")
        _number(axes.yaxis)
    else:
        # A line that varies by a percent must not look like a cliff.
        axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7 if len(panel.lines) < CROWD else 5)


def _number(axis: Axis) -> None:
    """A logarithmic axis in plain figures: powers of ten cover each other where an axis spans one decade."""
    from matplotlib import ticker

    axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(ticker.NullFormatter())
