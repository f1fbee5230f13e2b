"""Curves of kept evidence against ratio as an SVG. It looks as the benchmarks' plots do, and is drawn apart from them
since `pith tune` runs where no plotting library is."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from compression.tuning.advice import Point, recommended

_WIDTH, _LEFT, _RIGHT, _PLOT, _BELOW = 900, 64, 24, 320, 52
_TITLE_LINE, _TITLE_CHARACTERS, _LEGEND_LINE, _CHARACTER = 22, 96, 20, 7.5
# Told apart by those who see colours badly, too (Okabe and Ito).
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


def takeaway(curves: Mapping[str, Sequence[Point]], wanted: float) -> str:
    """The smallest ratio from which on each model keeps the share wanted, from 0 to 1, or the most that it keeps."""
    said = []
    for name, points in curves.items():
        best = recommended(points, wanted) or max(points, key=lambda point: point.kept)
        said.append(
            f"{name} keeps the evidence of {100 * best.kept:.1f}% of questions at ratio {best.target_ratio:g}"
        )
    return ", ".join(said)


def chart(curves: Mapping[str, Sequence[Point]], title: str) -> str:
    """One line a model with its interval as a band: ticks at the ratios measured, on a logarithmic scale."""
    ratios = sorted({point.target_ratio for points in curves.values() for point in points})
    titles, legend = textwrap.wrap(title, _TITLE_CHARACTERS), _legend(curves)
    top = _TITLE_LINE * len(titles) + _LEGEND_LINE * len(legend) + 26
    frame = _Frame(top, ratios[0], ratios[-1])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {top + _PLOT + _BELOW}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{_WIDTH}" height="{top + _PLOT + _BELOW}" fill="white"/>',
    ]
    for at, line in enumerate(titles, 1):
        parts.append(
            f'<text x="12" y="{_TITLE_LINE * at}" font-size="16" font-weight="bold">{escape(line)}</text>'
        )
    for at, row in enumerate(legend, 1):
        parts += _legend_row(row, _TITLE_LINE * len(titles) + _LEGEND_LINE * at)
    parts += _grid(frame, ratios)
    for (_, points), colour in zip(curves.items(), _colours(curves), strict=True):
        parts += _curve(frame, points, colour)
    return "\n".join([*parts, "</svg>"]) + "\n"


@dataclass(frozen=True, slots=True)
class _Frame:
    """Where a ratio and a share are in the picture."""

    top: int
    least: float
    most: float

    def x(self, ratio: float) -> float:
        if self.least == self.most:
            return (_LEFT + _WIDTH - _RIGHT) / 2
        along = math.log(ratio / self.least) / math.log(self.most / self.least)
        return round(_LEFT + 16 + (_WIDTH - _RIGHT - _LEFT - 32) * along, 1)

    def y(self, share: float) -> float:
        return round(self.top + _PLOT * (1 - share), 1)

    def path(self, points: Sequence[tuple[float, float]]) -> str:
        return " ".join(f"{self.x(ratio):.1f},{self.y(share):.1f}" for ratio, share in points)


def _colours(names: Mapping[str, object]) -> list[str]:
    return [_COLOURS[at % len(_COLOURS)] for at in range(len(names))]


def _legend(curves: Mapping[str, object]) -> list[list[tuple[int, str, str]]]:
    """Rows of places, names and colours; none for one model, which the title names."""
    rows: list[list[tuple[int, str, str]]] = []
    free_from = _WIDTH
    for name, colour in zip(curves, _colours(curves), strict=True) if len(curves) > 1 else ():
        width = int(46 + _CHARACTER * len(name))
        if free_from + width > _WIDTH:
            rows.append([])
            free_from = 12
        rows[-1].append((free_from, name, colour))
        free_from += width
    return rows


def _legend_row(row: Sequence[tuple[int, str, str]], y: int) -> list[str]:
    return [
        f'<rect x="{x}" y="{y - 6}" width="20" height="3" fill="{colour}"/>'
        f'<text x="{x + 26}" y="{y}">{escape(name)}</text>'
        for x, name, colour in row
    ]


def _grid(frame: _Frame, ratios: Sequence[float]) -> list[str]:
    parts = []
    for share in _SHARES:
        y = frame.y(share)
        parts.append(f'<line x1="{_LEFT}" y1="{y}" x2="{_WIDTH - _RIGHT}" y2="{y}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{100 * share:g}%</text>')
    bottom = frame.top + _PLOT
    for ratio in ratios:
        x = frame.x(ratio)
        parts.append(f'<line x1="{x}" y1="{frame.top}" x2="{x}" y2="{bottom}" stroke="#eee"/>')
        parts.append(f'<text x="{x}" y="{bottom + 18}" text-anchor="middle">{ratio:g}</text>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(
        f'<text x="{middle}" y="{bottom + 40}" text-anchor="middle">target ratio; questions that kept their '
        "evidence, with 95% intervals</text>"
    )
    return parts


def _curve(frame: _Frame, points: Sequence[Point], colour: str) -> list[str]:
    band = [(p.target_ratio, p.high) for p in points] + [(p.target_ratio, p.low) for p in reversed(points)]
    line = frame.path([(p.target_ratio, p.kept) for p in points])
    dots = "".join(
        f'<circle cx="{frame.x(p.target_ratio)}" cy="{frame.y(p.kept)}" r="3.5" fill="{colour}"/>'
        for p in points
    )
    return [
        f'<polygon points="{frame.path(band)}" fill="{colour}" opacity="0.15"/>',
        f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>',
        dots,
    ]
