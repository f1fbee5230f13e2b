"""Summary of a model's receipts, a row a suite: warnings, probabilities, sizes and times, and what promises took."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.evaluation.suites.families import name_of_family
from benchmarks.load.report import Table, table
from benchmarks.quality.flagged import at_ratios, calibration_error
from benchmarks.quality.scoring import Outcome, Summary, percentile, summarise, warned_percent
from benchmarks.quality.targets import PROMISED_RATIO

FLAGS = ("lost (%)", "losses / kept that warn (%)", "mean probability", "calibration error")
SIZES = ("ratio error: mean, worst", "over target (%)", "p50 ms", "p95 ms")


def models(outcomes: Sequence[Outcome]) -> list[str]:
    """The first, and the others that kept a promise: each has a table."""
    promised = [one.selector for one in outcomes if one.keep is not None and one.told is not None]
    return list(dict.fromkeys([outcomes[0].selector, *promised]))


def receipts(outcomes: Sequence[Outcome], model: str) -> Table:
    """Empty where the model has no receipt. The last columns are there where a promise was asked for."""
    told = [one for one in outcomes if one.selector == model and one.told is not None]
    suites: dict[str, list[Outcome]] = {}
    for outcome in told:
        suites.setdefault(outcome.suite, []).append(outcome)
    keep = next((outcome.keep for outcome in told if outcome.keep is not None), None)
    head = ["suite (outputs)", *FLAGS, *SIZES]
    rows = [[*_flags(suite, group), *_sizes(group)] for suite, group in suites.items()]
    if keep is not None:
        head += [f"keep {keep:g}: kept (%)", "mean ratio", "p10 / p50 / p90"]
        rows = [[*row, *_promise(*suite)] for row, suite in zip(rows, suites.items(), strict=True)]
    everything = _flags("all", told)
    return table(head, [*rows, [*everything, *[""] * (len(head) - len(everything))]]) if rows else []


def _flags(suite: str, group: Sequence[Outcome]) -> list[str]:
    """Over all ratios."""
    found = at_ratios(group)
    if not found:
        return [f"{suite} ({len(group)})", *[""] * len(FLAGS)]
    lost = 100 * sum(not outcome.has_evidence for outcome in found) / len(found)
    warned = [_cell(warned_percent(found, has_evidence=kept), 0) or "-" for kept in (False, True)]
    said = [
        one.told.evidence_kept_probability
        for one in found
        if one.told is not None and one.told.evidence_kept_probability is not None
    ]
    return [
        f"{suite} ({len(found)})", f"{lost:.1f}", " / ".join(warned),
        _cell(sum(said) / len(said) if said else None, 2), _cell(calibration_error(found), 3),
    ]  # fmt: skip


def _sizes(group: Sequence[Outcome]) -> list[str]:
    """Over all ratios how far outputs are from the target, and times at each."""
    found = summarise(at_ratios(group))
    if not found:
        return [""] * len(SIZES)
    mean = sum(one.mean_ratio_error or 0 for one in found) / len(found)
    worst = max(one.worst_ratio_error or 0 for one in found)
    over = max(one.over_target_percent or 0 for one in found)
    return [
        f"{mean:.4f}, {worst:.4f}", f"{over:.1f}", " / ".join(_cell(one.latency_ms_p50, 0) for one in found),
        " / ".join(_cell(one.latency_ms_p95, 0) for one in found),
    ]  # fmt: skip


def _promise(suite: str, group: Sequence[Outcome]) -> list[str]:
    promised = [outcome for outcome in group if outcome.keep is not None]
    if not promised:
        return ["", "", ""]
    (summary,) = summarise(promised)
    ratios = [outcome.told.ratio for outcome in promised if outcome.told is not None]
    spread = [f"{percentile(ratios, share) or 0:.2f}" for share in (0.1, 0.5, 0.9)]
    return [f"{summary.evidence_percent:.1f}", _ratio(suite, summary), " / ".join(spread)]


def _ratio(suite: str, summary: Summary) -> str:
    most = PROMISED_RATIO.get(name_of_family(suite))
    return _cell(summary.mean_ratio, 3) + (f" (≤ {most:g})" if most is not None else "")


def _cell(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"
