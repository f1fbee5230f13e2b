"""Risk flags: every code there is, the thresholds that raise them, and the compression that checks look at."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from compression.calibration.estimate import Estimate
from compression.source.units import Segmentation

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
    "main_text_cut": "warning",
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


_LONGEST_EXAMPLE = 120


@dataclass(frozen=True)
class Evidence:
    """One compression. `slices` are the spans of the source that make up `output`, in any order. Where the source is a
    view of the input, so is `output`; flags have offsets into the input.

    `scores` is None where nothing was scored, because all was kept; `estimate` where the model has no calibration.
    `is_promised`: a probability was asked for in place of a ratio.
    """

    query: str
    text: Segmentation
    slices: Sequence[tuple[int, int]]
    output: str
    scores: Sequence[float] | None
    target_ratio: float
    budget: int
    original_tokens: int
    output_tokens: int
    settings: FlagSettings
    estimate: Estimate | None = None
    is_promised: bool = False

    @property
    def source(self) -> str:
        return self.text.source

    @cached_property
    def mask(self) -> bytearray:
        """One byte a code point of the source: 1 where it was kept."""
        mask = bytearray(len(self.source))
        for start, end in self.slices:
            mask[start:end] = b"\x01" * (end - start)
        return mask

    def kept_length(self, start: int, end: int) -> int:
        return self.mask.count(1, start, end)

    def is_whole(self, start: int, end: int) -> bool:
        return self.kept_length(start, end) == end - start

    @cached_property
    def kept_units(self) -> list[int]:
        """Units of which anything was kept."""
        return [
            index
            for index, unit in enumerate(self.text.units)
            if self.mask.find(1, unit.start, unit.end) >= 0
        ]

    @cached_property
    def cut_units(self) -> list[int]:
        """Units of which a part was kept and a part was not."""
        return [
            index
            for index in self.kept_units
            if self.mask.find(0, self.text.units[index].start, self.text.units[index].end) >= 0
        ]

    def flag(
        self,
        code: str,
        spans: Iterable[tuple[int, int]] = (),
        *,
        count: int | None = None,
        severity: Severity | None = None,
    ) -> Flag:
        """A flag with the first three of `spans` as examples; it counts the spans unless told otherwise.

        Its severity is the code's, unless given.
        """
        found = list(spans)
        examples = tuple(self._example(start, end) for start, end in found[:3])
        return Flag(code, severity or CODES[code], len(found) if count is None else count, examples)

    def _example(self, start: int, end: int) -> Example:
        origin = self.text.origin
        raw = self.source if origin is None else origin.input
        first, last = self.text.raw_span(start, end)
        return Example(first, last, raw[first : min(last, first + _LONGEST_EXAMPLE)])
