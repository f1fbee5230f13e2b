"""Contents of a picture, and the one function that draws it. matplotlib is slow to import: only drawing imports it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path

import orjson

from benchmarks.load.sample import Run, percentile

# A page shows it 900 pixels wide, some screens with two dots a pixel; and a repository keeps every picture it ever had.
DPI, SHADES = 150, 128
DATA = "pith picture"
TIMES: Mapping[str, Callable[[Run], list[float]]] = {
    "latency": Run.latencies_ms, "TTFT": Run.ttfts_ms, "between events": Run.gaps_ms
}  # fmt: skip
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Panel:
    """One diagram: a line for each name, and in grey what they are held against.

    Its x values were chosen by whoever measured (clients, ratios), and are its ticks; `continuous_x` where they were
    not, as times and probabilities. `top` is where the y axis ends, if not above the highest point. `rows` name the y
    values 0, 1, … from the top, and then points are not joined, nor are those of shares that few samples make up
    (`joined`). `spans` are intervals of a line's points: from, to and y; `upright` are those that stand: x, from and
    to. `shares` say how much of all samples each point of a line stands for, from 0 to 1: its mark's area.
    """

    title: str
    x: str
    y: str
    lines: Mapping[str, Points]
    log_x: bool = False
    log_y: bool = False
    continuous_x: bool = False
    top: float | None = None
    guides: Mapping[str, Points] = field(default_factory=dict)
    rows: Sequence[str] = ()
    joined: bool = True
    spans: Mapping[str, Sequence[tuple[float, float, float]]] = field(default_factory=dict)
    shares: Mapping[str, Sequence[float]] = field(default_factory=dict)
    upright: Mapping[str, Sequence[tuple[float, float, float]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Picture:
    """Panels and what they say together: the title is the takeaway, as a sentence."""

    title: str
    panels: Sequence[Panel]


def distribution(title: str, x: str, samples: Mapping[str, Sequence[float]]) -> Panel:
    """The share of samples up to each time; empty ones are left out."""
    lines = {
        name: [(percentile(values, percent), percent) for percent in range(1, 100)]
        for name, values in samples.items()
        if values
    }
    return Panel(title, x, "% of all", lines, log_x=True, continuous_x=True, top=100)


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


def reliability(title: str, lines: Mapping[str, Points], shares: Mapping[str, Sequence[float]]) -> Panel:
    """Shares that came true against the probabilities that were said, and the `shares` of outputs that each is of."""
    exact = {"exact": [(0.0, 0.0), (1.0, 1.0)]}
    return Panel(title, "probability said", "share that kept its evidence", lines,
                 continuous_x=True, top=1, guides=exact, joined=False, shares=shares)  # fmt: skip


def calibrations(
    lines: Mapping[str, Mapping[str, Points]],
    shares: Mapping[str, Mapping[str, Sequence[float]]],
    errors: Mapping[str, float],
) -> Picture:
    """A reliability diagram for each kind of model, and its calibration error from 0 to 1."""
    said = ", ".join(f"{100 * error:.1f} points ({kind})" for kind, error in errors.items())
    panels = [reliability(kind, of_kind, shares[kind]) for kind, of_kind in lines.items()]
    return Picture(f"Probabilities are off by {said} on average", panels)


def draw(path: Path, panels: Sequence[Panel], *, title: str = "", dpi: int = DPI) -> Path:
    """A PNG of the panels that have a line, which carries their figures: see `read`."""
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    from benchmarks.load.drawing import figure_of

    drawn = Picture(title, [panel for panel in panels if any(panel.lines.values())])
    carried, raw = PngInfo(), BytesIO()
    carried.add_text(DATA, orjson.dumps(drawn).decode(), zip=True)
    figure_of(drawn).savefig(raw, dpi=dpi)
    path.parent.mkdir(parents=True, exist_ok=True)
    with Image.open(raw) as image:
        image.convert("RGB").quantize(SHADES).save(path, pnginfo=carried, optimize=True)
    return path


def read(path: Path) -> Picture:
    """What a picture was drawn of, so that it can be drawn anew. Raises `KeyError` for one that carries nothing."""
    from PIL import Image

    with Image.open(path) as image:
        body = orjson.loads(image.info[DATA])
    return Picture(body["title"], [Panel(**panel) for panel in body["panels"]])
