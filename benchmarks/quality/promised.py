"""What a promise came to: how often the evidence was kept, and how much of the text that took."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.load.report import table
from benchmarks.quality.families import name_of_family
from benchmarks.quality.scoring import Outcome, percentile
from benchmarks.quality.targets import PROMISED_RATIO

HEAD = (
    "suite",
    "model",
    "keep",
    "cases",
    "kept their evidence (%)",
    "mean ratio",
    "target",
    "p10",
    "p50",
    "p90",
)


def promises(outcomes: Sequence[Outcome]) -> list[str]:
    """A row a suite and model; empty where nothing was promised."""
    groups: dict[tuple[str, str, float], list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.keep is not None and outcome.told is not None:
            groups.setdefault((outcome.suite, outcome.selector, outcome.keep), []).append(outcome)
    return table(HEAD, [_row(*key, group) for key, group in groups.items()]) if groups else []


def _row(suite: str, selector: str, keep: float, group: Sequence[Outcome]) -> list[str]:
    ratios = [outcome.told.ratio for outcome in group if outcome.told is not None]
    kept = 100 * sum(outcome.has_evidence for outcome in group) / len(group)
    most = PROMISED_RATIO.get(name_of_family(suite))
    spread = [f"{percentile(ratios, share) or 0:.2f}" for share in (0.1, 0.5, 0.9)]
    return [
        suite, selector, f"{keep:g}", str(len(group)), f"{kept:.1f}", f"{sum(ratios) / len(ratios):.3f}",
        f"at most {most:g}" if most is not None else "", *spread,
    ]  # fmt: skip
