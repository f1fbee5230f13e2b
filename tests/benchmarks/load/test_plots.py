"""A picture can be read: ticks at what was measured, a grid, one legend and the takeaway; and can be drawn anew."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.load import plots
from benchmarks.load.drawing import figure_of
from benchmarks.load.plots import Panel, Picture

CLIENTS = {
    "bare": [(1.0, 10.0), (16.0, 90.0), (64.0, 120.0)],
    "pith": [(1.0, 9.0), (16.0, 80.0), (64.0, 110.0)],
}
RATIOS = {"pith": [(0.05, 70.0), (0.1, 80.0), (0.25, 95.0), (0.5, 100.0)]}


def panels(count: int) -> list[Panel]:
    return [plots.throughput("requests/s", CLIENTS) for _ in range(count)]


def labels(axes: Axes) -> list[str]:
    return [label.get_text() for label in axes.get_xticklabels()]


def drawn(*shown: Panel, title: str = "") -> Figure:
    return figure_of(Picture(title, shown))


def test_ticks_are_the_values_that_were_measured_and_no_others() -> None:
    clients, ratios = drawn(
        plots.throughput("tokens/s", CLIENTS), Panel("kept", "target ratio", "%", RATIOS, log_x=True)
    ).axes
    assert (list(clients.get_xticks()), labels(clients)) == ([1, 16, 64], ["1", "16", "64"])
    assert (list(ratios.get_xticks()), labels(ratios)) == (
        [0.05, 0.1, 0.25, 0.5],
        ["0.05", "0.1", "0.25", "0.5"],
    )
    assert not list(clients.get_xticks(minor=True))


def test_a_crowded_axis_keeps_every_tick_and_leaves_out_names_that_would_cover_others() -> None:
    many = [(number / 50, 1.0) for number in range(1, 51)]
    [axes] = drawn(Panel("kept", "ratio", "%", {"pith": many})).axes
    assert list(axes.get_xticks()) == [x for x, _ in many]
    assert 3 < len([label for label in labels(axes) if label]) < 25


def test_a_picture_has_one_legend_that_names_every_line_of_any_panel_once() -> None:
    figure = drawn(
        *panels(2), Panel("kept", "ratio", "%", {"other": RATIOS["pith"]}, guides={"exact": [(0, 0), (1, 1)]})
    )
    [legend] = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["bare", "pith", "other", "exact"]
    assert all(axes.get_legend() is None for axes in figure.axes)


def test_a_name_has_one_colour_in_all_panels() -> None:
    first, second = drawn(
        Panel("a", "x", "y", CLIENTS),
        Panel("b", "x", "y", {"pith": CLIENTS["pith"], "bare": CLIENTS["bare"]}),
    ).axes
    bare, pith = (line.get_color() for line in first.get_lines())
    assert bare != pith
    assert [line.get_color() for line in second.get_lines()] == [pith, bare]


def test_few_points_are_marked_and_the_many_of_a_distribution_are_not() -> None:
    samples = {name: [1.0, 2.0, 3.0] for name in CLIENTS}
    few, many = drawn(
        plots.throughput("requests/s", CLIENTS), plots.distribution("latency", "ms", samples)
    ).axes
    assert [line.get_marker() for line in few.get_lines()] == ["o", "s"]
    assert [line.get_marker() for line in many.get_lines()] == ["", ""]


@pytest.mark.parametrize(
    ("count", "rows", "columns"),
    [(1, 1, 1), (2, 1, 2), (3, 1, 3), (4, 2, 2), (6, 2, 3), (7, 2, 4), (21, 6, 4)],
)
def test_panels_form_a_grid(count: int, rows: int, columns: int) -> None:
    figure = drawn(*panels(count))
    places = [axes.get_subplotspec() for axes in figure.axes]
    assert [(place.rowspan.start, place.colspan.start) for place in places if place] == [
        (at // columns, at % columns) for at in range(count)
    ]
    assert {place.get_gridspec().get_geometry() for place in places if place} == {(rows, columns)}


def test_the_title_is_what_the_caller_says_in_lines_that_fit() -> None:
    said = "pith keeps 97% of bare vLLM's throughput at 16 clients, " * 3
    title = drawn(*panels(2), title=said).get_suptitle()
    assert title.replace("\n", " ") == said.strip()
    assert max(map(len, title.split("\n"))) < 95


def test_panels_of_one_measure_have_one_scale_which_begins_at_nothing() -> None:
    low = {"pith": [(1.0, 3.0), (16.0, 4.0)]}
    one, two = drawn(plots.throughput("requests/s", CLIENTS), plots.throughput("requests/s", low)).axes
    assert one.get_ylim() == two.get_ylim()
    assert one.get_ylim()[0] == 0


def test_rows_are_named_from_the_top_and_their_points_are_not_joined() -> None:
    panel = Panel("p50", "ms", "", {"0.1": [(20.0, 0), (30.0, 1)]}, continuous_x=True, rows=["nq", "kv"])
    [axes] = drawn(panel).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["nq", "kv"]
    assert axes.yaxis_inverted()
    assert [line.get_linestyle() for line in axes.get_lines()] == ["None"]


def test_a_picture_carries_its_figures_so_that_it_can_be_drawn_anew(tmp_path: Path) -> None:
    shown = [
        plots.throughput("requests/s", CLIENTS),
        plots.distribution("latency", "ms", {"é": [1.0, 2.5, 4.0]}),
    ]
    path = plots.draw(
        tmp_path / "a.png", [*shown, Panel("empty", "x", "y", {"none": []})], title="what it says"
    )
    found = plots.read(path)
    assert (found.title, [panel.title for panel in found.panels]) == (
        "what it says",
        ["throughput", "latency"],
    )
    again = plots.draw(tmp_path / "b.png", found.panels, title=found.title)
    assert again.read_bytes() == path.read_bytes()


def test_an_interval_is_a_bar_through_its_mark() -> None:
    panel = Panel("bill", "of without", "", {"measured": [(0.6, 0)]}, continuous_x=True, rows=["free"],
                  spans={"measured": [(0.5, 0.7, 0)]})  # fmt: skip
    mark, bar = drawn(panel).axes[0].lines
    assert list(mark.get_xdata()) == [0.6] and mark.get_marker() == "o"
    assert list(bar.get_xdata()) == [0.5, 0.7] and bar.get_marker() == "None"


def test_an_upright_interval_stands_over_its_marks_x() -> None:
    panel = Panel(
        "",
        "tokens",
        "right",
        {"pith": [(300, 25.0)]},
        continuous_x=True,
        upright={"pith": [(300, 9.0, 53.0)]},
    )
    mark, bar = drawn(panel).axes[0].lines
    assert (list(bar.get_xdata()), list(bar.get_ydata())) == ([300, 300], [9.0, 53.0])
    assert bar.get_color() == mark.get_color()


def test_a_share_is_marked_by_the_outputs_that_it_is_of_and_not_joined() -> None:
    panel = plots.reliability("nq", {"receipts": [(0.1, 1.0), (0.9, 0.9)]}, {"receipts": [0.01, 0.99]})
    (axes,) = drawn(panel).axes
    few, many = axes.collections[0].get_sizes()
    assert many > 10 * few
    assert all(line.get_linestyle() == "None" for line in axes.lines if line.get_color() != "#999999")
