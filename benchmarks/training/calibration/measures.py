"""Measures of a calibration: for each suite, losses that warn, kept outputs that warn, and the calibration's error."""

from dataclasses import dataclass

import numpy as np

from compression.calibration.boosting import sigmoid
from compression.calibration.fitting import Curves, Floats, calibration_error, rates
from compression.tuning.artefact import Fitted, standards_of, usual_ratios
from compression.tuning.observing import RATIOS


@dataclass(frozen=True, slots=True)
class Line:
    """Shares from 0 to 1, of outputs of one suite; what warns, at the ratios that callers ask for."""

    suite: str
    outputs: int
    lost: float
    lost_warned: float
    kept_warned: float
    error: float
    area: float


def lines(fitted: Fitted, logits: tuple[Floats, Floats]) -> list[Line]:
    """One a suite, in the order of their names."""
    rows, odds = fitted.rows, np.repeat([each.at_odds[1] for each in standards_of(fitted)], len(RATIOS))
    warned = logits[0] - logits[1] < np.log(odds)
    chances, asked = sigmoid(logits[0]), usual_ratios(rows)
    found = []
    for suite in np.unique(rows.suites):
        own = rows.suites == suite
        kept = rows.kept[own]
        of_lost, of_kept = rates(warned[own & asked], rows.kept[own & asked])
        error = calibration_error(chances[own], kept)
        found.append(Line(str(suite), int(own.sum()), 1 - float(kept.mean()), of_lost, of_kept, error,
                          area(logits[0][own], kept)))  # fmt: skip
    return found


@dataclass(frozen=True, slots=True)
class Kept:
    """The outcome of a promise in one suite: the share of questions that kept their evidence, and the mean ratio."""

    suite: str
    questions: int
    covered: float
    ratio: float


def promised(fitted: Fitted, logits: Floats, keep: float) -> list[Kept]:
    """One a suite. `logits` are of judges that had not seen the questions."""
    curves = Curves.of(logits, fitted.rows, fitted.ratios, len(RATIOS))
    kept, ratios = curves.stopped(np.array([each.wanted(keep) for each in standards_of(fitted)]))
    suites = curves.suites
    return [
        Kept(str(suite), int((suites == suite).sum()), float(kept[suites == suite].mean()),
             float(ratios[suites == suite].mean()))
        for suite in np.unique(suites)
    ]  # fmt: skip


def area(logits: Floats, kept: Floats) -> float:
    """Under the receiver's curve: how often an output that kept its evidence looks better than one that lost it."""
    ranks = np.argsort(np.argsort(logits, kind="stable"), kind="stable") + 1.0
    good, bad = float(kept.sum()), float((1 - kept).sum())
    if not good or not bad:
        return 1.0
    return (float((ranks * kept).sum()) - good * (good + 1) / 2) / (good * bad)


def table(fitted: Fitted) -> str:
    """Both ways of leaving out, side by side, in percent."""
    head = f"{'suite':24}{'lost':>6} | {'own kind seen':^30} | {'no suite of its family seen':^30}"
    found = [head, f"{'':30} | {'lost!':>6}{'kept!':>6}{'error':>7}{'area':>7}     |"]
    apart = lines(fitted, fitted.apart)
    other = lines(fitted, fitted.other) if fitted.other else [None] * len(apart)
    for one, two in zip(apart, other, strict=True):
        text = f"{one.suite:24}{100 * one.lost:6.1f} | {_cells(one)}     | "
        found.append(text + (_cells(two) if two else ""))
    error = calibration_error(sigmoid(fitted.apart[0]), fitted.rows.kept, fitted.rows.weights)
    found.append(f"calibration error, all suites weighted alike: {error:.3f}")
    found.append(f"{'keep: 0.95':24}{'questions':>10}{'covered':>9}{'ratio':>7}, own kind seen")
    found += [
        f"{one.suite:24}{one.questions:10}{100 * one.covered:9.1f}{one.ratio:7.3f}"
        for one in promised(fitted, fitted.apart[0], 0.95)
    ]
    return "\n".join(found)


def _cells(line: Line) -> str:
    return f"{100 * line.lost_warned:6.0f}{100 * line.kept_warned:6.0f}{line.error:7.3f}{line.area:7.3f}"
