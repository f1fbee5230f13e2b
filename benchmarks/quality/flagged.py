"""Calibration of a receipt's probability: tenths of what was said beside what came true."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.load import plots
from benchmarks.load.report import table
from benchmarks.quality.scoring import Outcome

BINS = 10


@dataclass(frozen=True, slots=True)
class Bin:
    """Outputs whose probability is in one tenth: the mean of what was said, and the share that kept its evidence."""

    outputs: int
    said: float
    kept: float


def bins(outcomes: Sequence[Outcome]) -> list[Bin]:
    """The tenths that have outputs, from the lowest; outputs without a probability are left out."""
    groups: list[list[tuple[float, bool]]] = [[] for _ in range(BINS)]
    for outcome in outcomes:
        if outcome.told is not None and (said := outcome.told.evidence_kept_probability) is not None:
            groups[min(BINS - 1, int(said * BINS))].append((said, outcome.has_evidence))
    return [
        Bin(
            len(group),
            sum(said for said, _ in group) / len(group),
            sum(kept for _, kept in group) / len(group),
        )
        for group in groups
        if group
    ]


def calibration_error(outcomes: Sequence[Outcome]) -> float | None:
    """The expected calibration error over tenths (Naeini and others, 2015); None where no receipt has a probability."""
    found = bins(outcomes)
    total = sum(each.outputs for each in found)
    return sum(each.outputs * abs(each.said - each.kept) for each in found) / total if total else None


def at_ratios(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Those with a receipt that were asked for a ratio; a promise is another thing."""
    return [outcome for outcome in outcomes if outcome.told is not None and outcome.ratio is not None]


def by_suite(outcomes: Sequence[Outcome], selector: str) -> dict[str, list[Outcome]]:
    """The outcomes of one selector at ratios."""
    found: dict[str, list[Outcome]] = {}
    for outcome in at_ratios(outcomes):
        if outcome.selector == selector:
            found.setdefault(outcome.suite, []).append(outcome)
    return found


def reliability(outcomes: Sequence[Outcome], selector: str) -> list[str]:
    """What was said above what came true, a column a tenth; empty where no receipt has a probability."""
    tenths = bins([each for found in by_suite(outcomes, selector).values() for each in found])
    rows = [
        ["share that kept its evidence", *(f"{each.kept:.2f}" for each in tenths)],
        ["outputs", *(str(each.outputs) for each in tenths)],
    ]
    return table(["probability said", *(f"{each.said:.2f}" for each in tenths)], rows) if tenths else []


def picture(outcomes: Sequence[Outcome], selector: str) -> plots.Picture | None:
    """The reliability diagram over everything and of each suite; None where no receipt has a probability."""
    groups = by_suite(outcomes, selector)
    everything = [outcome for group in groups.values() for outcome in group]
    error = calibration_error(everything)
    if error is None:
        return None
    panels = [
        _panel(name, found)
        for name, group in {"all suites": everything, **groups}.items()
        if (found := bins(group))
    ]
    return plots.Picture(
        f"The probability on {selector}'s receipts is off by {100 * error:.1f} points on average", panels
    )


def _panel(name: str, found: Sequence[Bin]) -> plots.Panel:
    """Marks of areas by the outputs that they stand for: a tenth of one output is no finding."""
    outputs = sum(each.outputs for each in found)
    points = [(each.said, each.kept) for each in found]
    shares = [each.outputs / outputs for each in found]
    return plots.reliability(f"{name}, {outputs:,} outputs", {"receipts": points}, {"receipts": shares})
