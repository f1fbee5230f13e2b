"""The pictures of the docs show what their pages say, and every one of them can be drawn anew."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from benchmarks import redraw
from benchmarks.load import plots
from benchmarks.load.page import tables

DOCS = Path(__file__).parents[2] / "docs"
PICTURES = sorted(DOCS.glob("*.png"))


def plain(picture: plots.Picture) -> object:
    return orjson.loads(orjson.dumps(picture))


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_a_picture_carries_figures_and_those_of_its_pages_tables(path: Path) -> None:
    assert plain(plots.read(path)) == plain(redraw.picture_of(path))


def test_the_throughput_is_that_of_the_table() -> None:
    rates, cpu_ms = redraw.picture_of(DOCS / "performance-json.png").panels
    [(head, [_, row, *_])] = tables(DOCS / "performance.md", "bare vLLM", "pith", "LiteLLM, no database")
    assert row[0] == "JSON, 16 clients"
    for side, cell in zip(head[1:], row[1:], strict=True):
        assert f"{dict(rates.lines[side])[16]:g}, {dict(cpu_ms.lines[side])[16]:g} ms" == cell
