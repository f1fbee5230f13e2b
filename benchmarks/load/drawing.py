"""Layout of a picture: the title, one legend, and panels in a grid, each with ticks at what was measured."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence

from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from benchmarks.load.plots import Panel, Picture, Points

# Inches, of which a page of 900 pixels shows a hundred pixels each.
WIDTH, NARROW = 9.0, 6.0
TITLE_LINE, LEGEND_LINE, ROW = 0.24, 0.19, 0.2
PANEL_HEIGHTS = {1: 3.3, 2: 2.9, 3: 2.5, 4: 2.1}
LETTER, DIGIT = 0.066, 0.075  # of the small print
# Told apart by those who see colours badly, too (Okabe and Ito, without their yellow), and by their markers.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
GREY, GUIDES = "#999999", ("--", ":", "-.", "-")
FEW = 20  # points that are marked one by one
LEAST_AREA, AREA = (
    6,
    150,
)  # square points of a mark that stands for no sample, and what is added for one of all
SMALL, MIDDLE, LARGE = 8.5, 9.5, 12
Style = dict[str, object]


def figure_of(picture: Picture) -> Figure:
    panels = picture.panels
    columns = _columns(len(panels))
    width = NARROW if columns == 1 and not panels[0].rows else WIDTH
    styles = _styles(panels)
    title, across = textwrap.wrap(picture.title, int(9.8 * width)), _legend_columns(styles, width)
    legend = -(-len(styles) // across) if across else 0
    header = TITLE_LINE * len(title) + LEGEND_LINE * legend + 0.13
    rows = -(-len(panels) // columns)
    height = header + sum(_height(panels[at * columns : (at + 1) * columns], columns) for at in range(rows))
    figure = Figure(figsize=(width, height))
    figure.set_layout_engine("constrained", rect=(0, 0, 1, 1 - header / height), w_pad=0.06, h_pad=0.06)
    _write_header(figure, title, styles, across)
    for at, panel in enumerate(panels):
        _draw_panel(figure.add_subplot(rows, columns, at + 1), panel, styles, width / columns)
    _same_scales(figure, panels, columns)
    return figure


def _write_header(figure: Figure, title: Sequence[str], styles: Mapping[str, Style], across: int) -> None:
    """The title, and below it the figure's one legend, from the left."""
    height = figure.get_figheight()
    figure.suptitle(
        "\n".join(title), x=0.01, y=1 - 0.07 / height, ha="left", va="top", size=LARGE, weight="bold"
    ).set_in_layout(False)
    if across:
        below = 1 - (TITLE_LINE * len(title) + 0.07) / height
        handles = [Line2D([], [], label=name, **style) for name, style in styles.items()]  # type: ignore[arg-type]
        figure.legend(
            handles=handles, loc="upper left", bbox_to_anchor=(0.002, below), ncols=across, frameon=False,
            fontsize=SMALL, borderaxespad=0, columnspacing=1.2, handlelength=2.2,
        ).set_in_layout(False)  # fmt: skip


def _columns(panels: int) -> int:
    """Of the grid: as few as fill it, at most four."""
    return panels if panels < 4 else {4: 2, 5: 3, 6: 3}.get(panels, 4)


def _height(row: Sequence[Panel], columns: int) -> float:
    return max(ROW * len(panel.rows) + 0.9 if panel.rows else PANEL_HEIGHTS[columns] for panel in row)


def _styles(panels: Sequence[Panel]) -> dict[str, Style]:
    """A name looks the same in all panels, the first lies on top; after the last colour, marks are hollow."""
    lines = dict.fromkeys(name for panel in panels for name, points in panel.lines.items() if points)
    guides = dict.fromkeys(name for panel in panels for name, points in panel.guides.items() if points)
    few = {name for panel in panels for name, points in panel.lines.items() if points and len(points) < FEW}
    apart = any(panel.rows or not panel.joined for panel in panels)
    found: dict[str, Style] = {}
    for at, name in enumerate(lines):
        again, of = divmod(at, len(COLOURS))
        dash = "" if apart else "--" if again else "-"
        marker = MARKERS[of] if name in few else ""
        inside = "white" if again else COLOURS[of]
        found[name] = {
            "color": COLOURS[of], "linestyle": dash, "linewidth": 1.6, "marker": marker, "markersize": 4.5,
            "markerfacecolor": inside, "zorder": 3 - at / 100, "clip_on": False,
        }  # fmt: skip
    for at, name in enumerate(guides):
        found[name] = {"color": GREY, "linestyle": GUIDES[at % len(GUIDES)], "linewidth": 1.2, "zorder": 1}
    return found


def _legend_columns(styles: Mapping[str, Style], width: float) -> int:
    """None for a single line: the title and the y axis say what it is."""
    if len(styles) < 2:
        return 0
    return max(1, min(len(styles), int(width / (LETTER * max(map(len, styles)) + 0.55))))


def _draw_panel(axes: Axes, panel: Panel, styles: Mapping[str, Style], width: float) -> None:
    for name, points in [*panel.guides.items(), *panel.lines.items()]:
        if points:
            marked = {} if len(points) < FEW else {"marker": ""}
            if name in panel.shares:
                marked = {"marker": ""}
                _draw_by_share(axes, points, panel.shares[name], styles[name])
            axes.plot(*zip(*points, strict=True), **styles[name] | marked)  # type: ignore[arg-type]
    for name, spans in panel.spans.items():
        for start, end, y in spans:
            axes.plot([start, end], [y, y], **_interval(styles[name]))  # type: ignore[arg-type]
    for name, spans in panel.upright.items():
        for x, start, end in spans:
            axes.plot([x, x], [start, end], **_interval(styles[name]))  # type: ignore[arg-type]
    axes.set_title(panel.title, size=MIDDLE, loc="left")
    axes.set_xlabel(panel.x, size=SMALL)
    axes.set_ylabel(panel.y, size=SMALL)
    axes.tick_params(labelsize=SMALL, color=GREY)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    _scale_x(axes, panel, width)
    _scale_y(axes, panel)


def _interval(style: Style) -> Style:
    return {"color": style["color"], "linewidth": 2.2, "alpha": 0.45, "zorder": 2}


def _draw_by_share(axes: Axes, points: Points, shares: Sequence[float], style: Style) -> None:
    x, y = zip(*points, strict=True)
    areas = [LEAST_AREA + AREA * share for share in shares]
    own = {"color": style["color"], "marker": style["marker"] or "o", "zorder": style["zorder"]}
    axes.scatter(x, y, s=areas, alpha=0.8, clip_on=False, **own)  # type: ignore[arg-type]


def _scale_x(axes: Axes, panel: Panel, width: float) -> None:
    if panel.log_x:
        axes.set_xscale("log")
    if panel.continuous_x:
        _number(axes.xaxis, log=panel.log_x)
        return
    measured = sorted({x for points in panel.lines.values() for x, _ in points})
    axes.xaxis.set_major_locator(ticker.FixedLocator(measured))
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    axes.margins(x=0.07)
    axes.xaxis.set_major_formatter(ticker.FixedFormatter(_labels(axes, measured, 0.75 * width)))


def _labels(axes: Axes, ticks: Sequence[float], inches: float) -> list[str]:
    """The ticks' own values; those that would cover the one before are left empty."""
    ends = axes.transData.transform([(tick, 1.0) for tick in ticks])[:, 0]
    (left, _), (right, _) = axes.transAxes.transform([(0, 0), (1, 0)])
    found, free_from = [], float("-inf")
    for tick, place in zip(ticks, ends, strict=True):
        middle, label = inches * (place - left) / (right - left), f"{tick:,g}"
        half = DIGIT * len(label) / 2
        fits = middle - half >= free_from
        found.append(label if fits else "")
        free_from = middle + half + 0.03 if fits else free_from
    return found


def _scale_y(axes: Axes, panel: Panel) -> None:
    if panel.rows:
        axes.set_yticks(range(len(panel.rows)), panel.rows)
        axes.set_ylim(len(panel.rows) - 0.4, -0.6)
        if not panel.log_x:
            axes.set_xlim(left=0)
        return
    if panel.log_y:
        axes.set_yscale("log")
    else:
        # A line that varies by a percent must not look like a cliff.
        axes.set_ylim(bottom=0, top=panel.top and 1.03 * panel.top)
    _number(axes.yaxis, log=panel.log_y)


def _number(axis: Axis, *, log: bool) -> None:
    """Plain figures: powers of ten cover each other where a logarithmic axis spans one decade."""
    axis.set_major_locator(
        ticker.LogLocator(subs=(1, 2, 5)) if log else ticker.MaxNLocator(5, steps=(1, 2, 2.5, 5, 10))
    )
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,g}"))
    axis.set_minor_locator(ticker.NullLocator())


def _same_scales(figure: Figure, panels: Sequence[Panel], columns: int) -> None:
    """Panels of the same measure have the same y axis; a label that all share is written once."""
    for measure in {panel.y for panel in panels if not panel.rows}:
        own = [
            axes
            for axes, panel in zip(figure.axes, panels, strict=True)
            if panel.y == measure and not panel.rows
        ]
        low, high = zip(*(axes.get_ylim() for axes in own), strict=True)
        for axes in own:
            axes.set_ylim(min(low), max(high))
    if len(panels) > 1 and _one(panel.x for panel in panels):
        figure.supxlabel(panels[0].x, size=SMALL)
        for axes in figure.axes:
            axes.set_xlabel("")
    if len(panels) > 1 and _one((panel.y, tuple(panel.rows)) for panel in panels):
        figure.supylabel(panels[0].y, size=SMALL)
        for at, axes in enumerate(figure.axes):
            axes.set_ylabel("")
            axes.tick_params(labelleft=at % columns == 0)


def _one(values: Iterable[object]) -> bool:
    return len(set(values)) == 1
