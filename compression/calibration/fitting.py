"""Fits a calibration to observations: trees, the odds that raise a flag, and how well they hold."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from compression.calibration.boosting import Boosting, Trees, grow
from compression.calibration.signals import NAMES, OF_CHOICE, OF_TEXT

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
FOLDS = 5
CHANCE = Boosting(rounds=260, depth=3, rate=0.05, least_weight=60.0, ridge=30.0)
USUAL = Boosting(rounds=60, depth=3, rate=0.1, least_weight=60.0, ridge=20.0)
# An output warns where its odds are below what is usual for such an input; critical far below, for information above.
AT_ODDS = (0.25, 1.0, 3.0)
# Of losses, and of outputs that kept their evidence, what should warn.
WARNED_LOSSES, WARNED_KEPT = 0.70, 0.15
# A kind of source with so many questions has odds and promises of its own; of a suite with so many, coverage is told;
# with so many losses, whether they warn.
FEWEST_OF_KIND, FEWEST_OF_SUITE, FEWEST_LOSSES = 40, 20, 5
# Of a kind's promises the highest with a threshold of its own.
MOST_OF_KIND = 0.95
WARNING_ODDS = tuple(float(odds) for odds in np.round(np.geomspace(0.5, 2.0, 29), 3))
# Probabilities for which a threshold is found; those between are read off the line between two.
KEEPS = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.99)
_RISES = np.array([name in OF_CHOICE for name in NAMES])


@dataclass(frozen=True)
class Rows:
    """Observations one under the other: signals `[rows, NAMES]`, whether the evidence was kept, suite, group, and the
    kind of the source."""

    signals: Floats
    kept: Floats
    suites: NDArray[np.str_]
    groups: NDArray[np.str_]
    kinds: NDArray[np.str_]

    def where(self, chosen: Bools) -> Rows:
        of = (self.suites[chosen], self.groups[chosen], self.kinds[chosen])
        return Rows(self.signals[chosen], self.kept[chosen], *of)

    @property
    def weights(self) -> Floats:
        """Suites count alike, however many rows they have."""
        _, which, counts = np.unique(self.suites, return_inverse=True, return_counts=True)
        return np.asarray(len(self.suites) / len(counts) / counts[which], np.float64)


@dataclass(frozen=True)
class Judges:
    """The two ensembles: of all signals, and of those of the text alone."""

    chance: Trees
    usual: Trees

    def of(self, rows: Rows) -> tuple[Floats, Floats]:
        """Logits of both."""
        return self.chance.logits(rows.signals), self.usual.logits(rows.signals[:, : len(OF_TEXT)])


def fit(rows: Rows, advance: Callable[[], None] = lambda: None) -> Judges:
    weights = rows.weights
    known = rows.signals[:, : len(OF_TEXT)]
    chance = grow(rows.signals, rows.kept, weights, _RISES, CHANCE, advance)
    usual = grow(known, rows.kept, weights, np.zeros(known.shape[1], bool), USUAL, advance)
    return Judges(chance, usual)


def fold_of(groups: Sequence[str] | NDArray[np.str_]) -> NDArray[np.int64]:
    """The fold of each row: all rows of a group are in one, and folds are alike in groups."""
    hashed = sorted(
        {str(group) for group in groups}, key=lambda group: hashlib.sha256(group.encode()).digest()
    )
    folds = {group: at % FOLDS for at, group in enumerate(hashed)}
    return np.array([folds[str(group)] for group in groups], np.int64)


def unseen(
    rows: Rows, parts: NDArray[np.int64], advance: Callable[[], None] = lambda: None
) -> tuple[Floats, Floats]:
    """Both logits of every row, by judges that were fitted without its part."""
    chance, usual = np.zeros(len(rows.kept)), np.zeros(len(rows.kept))
    for part in np.unique(parts):
        own = parts == part
        chance[own], usual[own] = fit(rows.where(~own), advance).of(rows.where(own))
    return chance, usual


def rates(warned: Bools, kept: Floats) -> tuple[float, float]:
    """The share of losses that warn, and the share of kept outputs that warn."""
    lost = kept == 0
    of_lost = float(warned[lost].mean()) if lost.any() else 1.0
    return of_lost, float(warned[~lost].mean()) if (~lost).any() else 0.0


def calibration_error(chances: Floats, kept: Floats, weights: Floats | None = None, bins: int = 10) -> float:
    """Mean distance between predicted and observed shares, over bins of equal width."""
    weights = np.ones(len(kept)) if weights is None else weights
    which = np.minimum((chances * bins).astype(int), bins - 1)
    gaps = [abs(float((weights * (kept - chances))[which == at].sum())) for at in range(bins)]
    return sum(gaps) / float(weights.sum())


@dataclass(frozen=True)
class Curves:
    """Rows as one line a question: logits `[questions, ratios]` in rising order of the ratios, what was kept, the
    ratios that came out, and the suite of each."""

    logits: Floats
    kept: Floats
    ratios: Floats
    suites: NDArray[np.str_]

    @classmethod
    def of(cls, logits: Floats, rows: Rows, ratios: Floats, count: int) -> Curves:
        """`count`: ratios a question. Logits never fall as the ratio rises."""
        rising = np.maximum.accumulate(logits.reshape(-1, count), axis=1)
        return cls(rising, rows.kept.reshape(-1, count), ratios.reshape(-1, count), rows.suites[::count])

    def stopped(self, logit: float | Floats) -> tuple[Floats, Floats]:
        """For each question, whether the first output that is as sure kept its evidence, and its ratio; the whole text
        where none is. `logit` is one for all questions, or one for each."""
        enough = self.logits >= np.reshape(logit, (-1, 1))
        first, lines = enough.argmax(axis=1), np.arange(len(enough))
        is_any = enough.any(axis=1)
        return np.where(is_any, self.kept[lines, first], 1.0), np.where(
            is_any, self.ratios[lines, first], 1.0
        )

    def where(self, chosen: Bools) -> Curves:
        """Of some questions."""
        return Curves(self.logits[chosen], self.kept[chosen], self.ratios[chosen], self.suites[chosen])

    def coverage(self, logit: float) -> Floats:
        """Of each suite, the share of its questions that kept their evidence."""
        kept, _ = self.stopped(logit)
        return np.array([kept[self.suites == suite].mean() for suite in np.unique(self.suites)])


def promises(curves: Curves) -> list[tuple[float, float]]:
    """For each of `KEEPS`, the logit to wait for while ever more is kept, so that this share of questions that were not
    fitted on kept their evidence: a conformal threshold, suites alike."""
    covered = _coverages(curves).mean(axis=1)
    margin = 1 + 1 / len(curves.suites)
    return [(keep, _first_above(covered < min(1.0, keep * margin))) for keep in KEEPS]


def promises_of_kind(curves: Curves, least: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same for the questions of one kind of source, where each suite with enough questions has to be covered as
    well, but for one standard error of so many. Never less than `least`, which is for all kinds. A kind's questions are
    too few to tell promises above `MOST_OF_KIND` apart: those wait for what `least` says, or for what that one does."""
    covered = _coverages(curves)
    _, counts = np.unique(curves.suites, return_counts=True)
    found: list[tuple[float, float]] = []
    for keep, logit in least:
        if keep > MOST_OF_KIND:
            found.append((keep, max(logit, found[-1][1])))
            continue
        error = np.sqrt(keep * (1 - keep) / counts)
        each = np.where(counts >= FEWEST_OF_SUITE, keep - error, 0.0)
        short = (covered.mean(axis=1) < keep) | (covered < each).any(axis=1)
        found.append((keep, max(logit, _first_above(short))))
    return found


_STEPS = np.linspace(-3.0, 8.0, 221)


def _coverages(curves: Curves) -> Floats:
    """By step and suite."""
    return np.array([curves.coverage(float(step)) for step in _STEPS])


def _first_above(short: Bools) -> float:
    """The step above the last one that falls short, so that a lucky one below it does not count."""
    at = np.flatnonzero(short)
    return float(_STEPS[min(len(_STEPS) - 1, at[-1] + 1)]) if len(at) else float(_STEPS[0])


def odds_of_kind(rows: Rows, logits: tuple[Floats, Floats]) -> float:
    """How many times the usual odds an output has at least that does not warn: what is nearest to the shares of losses
    and of kept outputs that should warn, suites alike. `rows` are of one kind of source, at ratios that callers ask
    for."""
    return float(
        min(WARNING_ODDS, key=lambda odds: (round(_amiss(rows, logits, odds), 3), abs(np.log(odds))))
    )


def _amiss(rows: Rows, logits: tuple[Floats, Floats], odds: float) -> float:
    """How far shares that warn are from what they should be, on the mean; a loss without a warning counts twice."""
    warned, found = logits[0] - logits[1] < np.log(odds), []
    for suite in np.unique(rows.suites):
        own = rows.suites == suite
        of_lost, of_kept = rates(warned[own], rows.kept[own])
        found.append(max(0.0, of_kept - WARNED_KEPT))
        if (rows.kept[own] == 0).sum() >= FEWEST_LOSSES:
            found.append(2 * max(0.0, WARNED_LOSSES - of_lost))
    return float(np.mean(found))
