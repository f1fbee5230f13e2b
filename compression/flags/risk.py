"""What the calibration says: whether the evidence was probably lost, and whether it can say so of such a request."""

from collections.abc import Iterator

from compression.flags.evidence import Evidence
from compression.flags.flag import Flag, Severity
from compression.source.units import STRUCTURE

_SEVERITIES: tuple[Severity, Severity, Severity] = ("critical", "warning", "info")


def risk_flags(evidence: Evidence) -> Iterator[Flag]:
    estimate = evidence.estimate
    if estimate is None:
        return
    if estimate.probability is not None:
        for severity, threshold in zip(_SEVERITIES, _thresholds(evidence), strict=True):
            if estimate.probability < threshold:
                yield evidence.flag("evidence_at_risk", _best_left_out(evidence), count=1, severity=severity)
                break
    if estimate.outside:
        severity = "warning" if evidence.is_promised else "info"
        yield evidence.flag("outside_calibration", count=len(estimate.outside), severity=severity)


def _thresholds(evidence: Evidence) -> tuple[float, float, float]:
    """The configuration's, or those of the calibration."""
    settings, given = evidence.settings, evidence.estimate.at_risk if evidence.estimate else (0.0, 0.0, 0.0)
    wanted = (settings.at_risk_critical, settings.at_risk_warning, settings.at_risk_info)
    critical, warning, info = (own if ask is None else ask for ask, own in zip(wanted, given, strict=True))
    return critical, warning, info


def _best_left_out(evidence: Evidence) -> list[tuple[int, int]]:
    """Where to look again: the best-scoring units that were left out."""
    scores, units, kept = evidence.scores, evidence.text.units, set(evidence.kept_units)
    if scores is None:
        return []
    left_out = [n for n, unit in enumerate(units) if n not in kept and unit.kind not in STRUCTURE]
    best = sorted(left_out, key=lambda unit: -scores[unit])[:3]
    return [(units[unit].start, units[unit].end) for unit in best]
