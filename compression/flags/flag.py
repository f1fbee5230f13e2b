"""A risk flag, every code there is, and the thresholds that raise them."""

from dataclasses import dataclass
from typing import Literal

_SCRIPTS = frozenset(
    {"latin", "greek", "cyrillic", "hebrew", "arabic", "devanagari", "bengali", "tamil", "thai"}
    | {"hangul", "kana", "han"}
)

Severity = Literal["info", "warning", "critical"]

CODES: dict[str, Severity] = {
    "target_unreachable": "critical",
    "ratio_aggressive": "warning",
    "input_too_short": "info",
    "negation_dropped": "critical",
    "number_dropped": "warning",
    "entity_dropped": "warning",
    "url_dropped": "warning",
    "quote_broken": "info",
    "query_missing": "warning",
    "query_terms_absent": "warning",
    "low_relevance": "warning",
    "evidence_at_risk": "warning",
    "evidence_borderline": "info",
    "outside_calibration": "info",
    "answer_type_absent": "warning",
    "code_altered": "warning",
    "json_invalid": "critical",
    "table_damaged": "warning",
    "unsupported_language": "warning",
    "instruction_like_text": "critical",
}
"""Every code with its severity. That of `evidence_at_risk` and `outside_calibration` depends on the case, and signs of
lost evidence are for information where a calibration does not warn."""


@dataclass(frozen=True, slots=True)
class Example:
    """`text` is `source[start:end]`, shortened where it is long; offsets count code points."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Flag:
    """One kind of risk, how often it was found, and up to three of the places."""

    code: str
    severity: Severity
    count: int
    examples: tuple[Example, ...] = ()


@dataclass(frozen=True, slots=True)
class FlagSettings:
    """Thresholds. Scores and shares are from 0 to 1.

    `aggressive_ratio`: a target below it is flagged. `short_input_tokens`: an input with fewer tokens is not worth
    compressing. `low_relevance`: no unit scored that high. `borderline_share`: units that were left out hold as
    large a share of the odds, score / (1 - score), of all. `query_terms_share`: fewer of the query's terms are in
    the output. `unsupported_share`: as many of the kept letters are in other scripts than `scripts`. `disabled`:
    codes that are never raised.
    """

    aggressive_ratio: float = 0.05
    short_input_tokens: int = 50
    low_relevance: float = 0.1
    borderline_share: float = 0.2
    query_terms_share: float = 0.2
    unsupported_share: float = 0.2
    at_risk_critical: float | None = None
    at_risk_warning: float | None = None
    at_risk_info: float | None = None
    scripts: frozenset[str] = _SCRIPTS
    disabled: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for name in (
            "aggressive_ratio",
            "low_relevance",
            "borderline_share",
            "query_terms_share",
            "unsupported_share",
            "at_risk_critical",
            "at_risk_warning",
            "at_risk_info",
        ):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise ValueError(f"{name}: must be from 0 to 1, not {value}")
        unknown = sorted(self.disabled - set(CODES))
        if unknown:
            raise ValueError(f"disabled: {unknown[0]!r} is not a flag; choose from {', '.join(CODES)}")
