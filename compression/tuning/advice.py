"""Advice from what was observed on a user's data: a ratio or a promise, and thresholds of flags."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compression.calibration.boosting import sigmoid
from compression.calibration.fitting import WARNED_KEPT, WARNED_LOSSES, Curves, Floats, rates
from compression.scorers.kinds import KINDS
from compression.tuning.artefact import Bars, Fitted, entry_of
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
    keeps, logits = np.array(fitted.entry["promises"]).T
    curves = Curves.of(fitted.apart[0], fitted.rows, fitted.ratios, len(RATIOS))
    kept, ratios = curves.stopped(float(np.interp(keep, keeps, logits)))
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
