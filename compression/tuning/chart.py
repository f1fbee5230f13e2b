"""Curves of kept evidence against ratio as an SVG, so that nobody needs a plotting library for it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from compression.tuning.curves import Point

_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 760, 420, 60, 40, 190, 50
# Told apart by those who see colours badly, too (Okabe and Ito).
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def chart(curves: Mapping[str, Sequence[Point]], title: str) -> str:
    """One line a model with its interval as a band; both axes from 0 to 1, ratios on a square-root scale."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="24" font-size="15">{escape(title)}</text>',
        *_grid(),
    ]
    for at, (name, points) in enumerate(curves.items()):
        colour = _COLOURS[at % len(_COLOURS)]
        band = [(p.ratio, p.high) for p in points] + [(p.ratio, p.low) for p in reversed(points)]
        parts.append(f'<polygon points="{_path(band)}" fill="{colour}" opacity="0.15"/>')
        line = _path([(p.ratio, p.kept) for p in points])
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        y = _TOP + 18 * (at + 1)
        parts.append(f'<rect x="{_WIDTH - _RIGHT + 16}" y="{y - 9}" width="12" height="4" fill="{colour}"/>')
        parts.append(f'<text x="{_WIDTH - _RIGHT + 34}" y="{y}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _grid() -> list[str]:
    parts = []
    for share in (0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0):
        y = _y(share)
        parts.append(f'<line x1="{_LEFT}" y1="{y}" x2="{_WIDTH - _RIGHT}" y2="{y}" stroke="#ddd"/>')
        if share != 0.95:
            parts.append(f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{100 * share:g}%</text>')
    for ratio in (0.02, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0):
        x = _x(ratio)
        parts.append(f'<line x1="{x}" y1="{_TOP}" x2="{x}" y2="{_HEIGHT - _BOTTOM}" stroke="#eee"/>')
        parts.append(f'<text x="{x}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{ratio:g}</text>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(
        f'<text x="{middle}" y="{_HEIGHT - 12}" text-anchor="middle">ratio of output to input tokens</text>'
    )
    return parts


def _path(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{_x(ratio):.1f},{_y(share):.1f}" for ratio, share in points)


def _x(ratio: float) -> float:
    return round(_LEFT + (_WIDTH - _RIGHT - _LEFT) * math.sqrt(min(1.0, max(0.0, ratio))), 1)


def _y(share: float) -> float:
    return round(_HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP) * share, 1)
