"""Runs every check over one compression; a clean one comes back with nothing."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from compression.flags.evidence import Evidence
from compression.flags.flag import CODES, Flag
from compression.flags.loss import lost_in_units
from compression.flags.quotations import broken_quotations
from compression.flags.relevance import relevance_flags
from compression.flags.risk import risk_flags
from compression.flags.structure import damaged_structure
from compression.flags.text import doubtful_text

_SIGNS = frozenset({"ratio_aggressive", "query_terms_absent", "low_relevance", "answer_type_absent"})
_CHECKS: tuple[Callable[[Evidence], Iterator[Flag]], ...]


def size_flags(evidence: Evidence) -> Iterator[Flag]:
    settings = evidence.settings
    if evidence.output_tokens > evidence.budget or (not evidence.output and evidence.source.strip()):
        yield evidence.flag("target_unreachable", _largest_protected(evidence), count=1)
    if evidence.target_ratio < settings.aggressive_ratio:
        yield evidence.flag("ratio_aggressive", count=1)
    if evidence.target_ratio < 1 and evidence.original_tokens < settings.short_input_tokens:
        yield evidence.flag("input_too_short", count=1)


def _largest_protected(evidence: Evidence) -> list[tuple[int, int]]:
    spans = [(unit.start, unit.end) for unit in evidence.text.units if unit.protected]
    return sorted(spans, key=lambda span: span[0] - span[1])


_CHECKS = (
    size_flags,
    lost_in_units,
    broken_quotations,
    relevance_flags,
    risk_flags,
    damaged_structure,
    doubtful_text,
)


def check(evidence: Evidence) -> tuple[Flag, ...]:
    """Flags in the order of `CODES`, without those that the settings disable."""
    found = {flag.code: flag for run in _CHECKS for flag in run(evidence)}
    weighed = _weighed(found, evidence)
    return tuple(
        weighed[code] for code in CODES if code in weighed and code not in evidence.settings.disabled
    )


def _weighed(found: dict[str, Flag], evidence: Evidence) -> dict[str, Flag]:
    """Signs that the evidence may be lost are for information where a calibration does not warn."""
    risk = found.get("evidence_at_risk")
    if (
        evidence.estimate is None
        or evidence.estimate.probability is None
        or (risk and risk.severity != "info")
    ):
        return found
    return {code: replace(flag, severity="info") if code in _SIGNS else flag for code, flag in found.items()}
