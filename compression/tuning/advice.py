"""Advice from what was observed on a user's data: a ratio or a promise, and thresholds of flags."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compression.calibration.boosting import sigmoid
from compression.calibration.fitting import WARNED_KEPT, WARNED_LOSSES, Curves, Floats, rates
from compression.scorers.kinds import KINDS
from compression.tuning.artefact import Bars, Fitted, entry_of, standards_of
from compression.tuning.observing import RATIOS, Observed

_RESAMPLES = 2000
_SEED = 20261122


@dataclass(frozen=True, slots=True)
class Point:
    """All questions at one target ratio: the share that kept its evidence with a 95% interval, from 0 to 1, and the
    mean ratio that came out."""

    target_ratio: float
    kept: float
    low: float
    high: float
    ratio: float


def curve(found: Sequence[Observed]) -> list[Point]:
    """One point a ratio; the intervals are of the bootstrap over questions, drawn with a fixed seed."""
    kept = np.stack([one.kept for one in found]).astype(np.float64)
    ratios = np.stack([one.ratios for one in found]).mean(axis=0)
    low, high = interval(kept)
    return [
        Point(target, float(share), float(low[at]), float(high[at]), float(ratios[at]))
        for at, (target, share) in enumerate(zip(RATIOS, kept.mean(axis=0), strict=True))
    ]


def interval(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The 95% interval of the mean over the first axis: two rows, low and high."""
    rng = np.random.default_rng(_SEED)
    drawn = rng.integers(len(values), size=(_RESAMPLES, len(values)))
    means = np.stack([values[chosen].mean(axis=0) for chosen in drawn])
    bounds: NDArray[np.float64] = np.quantile(means, (0.025, 0.975), axis=0)
    return bounds


def recommended(points: Sequence[Point], wanted: float) -> Point | None:
    """The smallest ratio from which on the share kept is at least `wanted`; None where none is."""
    enough = None
    for point in reversed(points):
        if point.kept < wanted:
            break
        enough = point
    return enough


# With fewer, what is fitted says more about the rows than about their kind.
FEWEST_QUESTIONS, FEWEST_LOSSES = 50, 10
_GRAVE = 0.75
# With fewer losses than this, thresholds say more about those that there are.
_FEW_LOSSES = 50


@dataclass(frozen=True, slots=True)
class Promise:
    """The outcome of asking for `keep` on questions that were not fitted on: shares from 0 to 1."""

    keep: float
    covered: float
    low: float
    high: float
    ratio: float


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Probabilities below which the flag `evidence_at_risk` is critical, a warning, for information; and of losses and
    of kept outputs the share that then warns."""

    critical: float
    warning: float
    info: float
    losses_warned: float
    kept_warned: float

    def cautions(self, losses: int) -> list[str]:
        """Reasons not to adopt them as they are; `losses`: outputs that they were found on and that lost evidence."""
        said = []
        if self.warning < 0.5:
            said.append(
                f"an output that keeps its evidence with a probability of {self.warning:g} to 0.5 gets no warning, "
                "though it is likelier to have lost it"
            )
        if self.losses_warned < WARNED_LOSSES or self.kept_warned > WARNED_KEPT:
            said.append(
                f"they miss the aim: {100 * WARNED_LOSSES:.0f}% of the losses, {100 * WARNED_KEPT:.0f}% of the others"
            )
        if losses < _FEW_LOSSES:
            said.append(f"they rest on {losses} losses")
        return said


@dataclass(frozen=True)
class Advice:
    """For one model. What a calibration is needed for is None where there is none, and `why_not` says why. `ms`:
    milliseconds of one compression, the median of the questions. `cautions`: reasons not to adopt the thresholds."""

    model: str
    kind: str
    questions: int
    points: list[Point]
    ratio: Point | None
    promise: Promise | None
    thresholds: Thresholds | None
    entry: dict[str, Any] | None
    why_not: str = ""
    ms: float = 0.0
    cautions: tuple[str, ...] = ()


def advise(model: str, kind: str, found: Sequence[Observed], keep: float, bars: Bars) -> Advice:
    """`keep`: the share of questions whose evidence is to survive."""
    points = curve(found)
    best = recommended(points, keep)
    ms = float(np.median([one.ms for one in found]))
    lost = sum(int((~one.kept).sum()) for one in found)
    if KINDS[kind].chooses_words:
        why = "it chooses words, so no calibration can be fitted"
        return Advice(model, kind, len(found), points, best, None, None, None, why, ms)
    if len(found) < FEWEST_QUESTIONS or lost < FEWEST_LOSSES:
        why = f"{len(found)} questions, {lost} losses: a calibration needs {FEWEST_QUESTIONS} and {FEWEST_LOSSES}"
        return Advice(model, kind, len(found), points, best, None, None, None, why, ms)
    fitted = entry_of(model, _apart(found), bars)
    promise, thresholds = promise_of(fitted, keep), thresholds_of(fitted)
    cautions = tuple(thresholds.cautions(lost))
    return Advice(
        model, kind, len(found), points, best, promise, thresholds, fitted.entry, ms=ms, cautions=cautions
    )


def _apart(found: Sequence[Observed]) -> list[Observed]:
    """With few texts every question is a group of its own, since a split by text would leave nothing to fit on."""
    if len({one.group for one in found}) >= 10:
        return list(found)
    return [replace(one, group=f"{one.group} {at}") for at, one in enumerate(found)]


def promise_of(fitted: Fitted, keep: float) -> Promise:
    curves = Curves.of(fitted.apart[0], fitted.rows, fitted.ratios, len(RATIOS))
    kept, ratios = curves.stopped(np.array([each.wanted(keep) for each in standards_of(fitted)]))
    low, high = interval(kept[:, None])[:, 0]
    return Promise(keep, float(kept.mean()), float(low), float(high), float(ratios.mean()))


def thresholds_of(fitted: Fitted) -> Thresholds:
    """Plain probabilities: with one kind of data thresholds need not depend on the input."""
    chances, kept = sigmoid(fitted.apart[0]), fitted.rows.kept
    candidates = np.round(np.linspace(0.02, 0.99, 98), 2)
    # Of those that do equally well the one next to even odds: where losses are told well, that is a wide range.
    warning = float(
        min(candidates, key=lambda at: (round(_shortfall(chances, kept, float(at)), 3), abs(float(at) - 0.5)))
    )
    # Next to each other, every warning would be critical.
    grave = [
        at for at in candidates if at <= 0.75 * warning and _lost_below(chances, kept, float(at)) >= _GRAVE
    ]
    critical = float(grave[-1]) if grave else round(warning / 3, 2)
    warned = rates(chances < warning, kept)
    return Thresholds(critical, warning, round(min(0.99, (1 + 2 * warning) / 3), 2), *warned)


def _shortfall(chances: Floats, kept: Floats, threshold: float) -> float:
    lost, spared = rates(chances < threshold, kept)
    return max(0.0, WARNED_LOSSES - lost) + max(0.0, spared - WARNED_KEPT)


def _lost_below(chances: Floats, kept: Floats, threshold: float) -> float:
    below = chances < threshold
    return float(1 - kept[below].mean()) if below.any() else 0.0


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
