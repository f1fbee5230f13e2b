"""Thresholds of the risk flags as a configuration file has them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from compression.flags import FlagSettings
from serve.config.strict_section import Section

Share = Annotated[float, Field(ge=0, le=1)]
_FLAGS = FlagSettings()


class FlagThresholdSettings(Section):
    aggressive_ratio: Share = Field(_FLAGS.aggressive_ratio, description="A target below it is flagged.")
    short_input_tokens: int = Field(
        _FLAGS.short_input_tokens, ge=0, le=1_000_000, description="Fewer tokens of input are flagged."
    )
    low_relevance: Share = Field(
        _FLAGS.low_relevance, description="Flagged where no unit scored as much, from 0 to 1."
    )
    borderline_share: Share = Field(
        _FLAGS.borderline_share, description="Flagged where dropped units hold this share of the odds."
    )
    query_terms_share: Share = Field(
        _FLAGS.query_terms_share, description="Flagged where less of the query's terms is in the output."
    )
    unsupported_share: Share = Field(
        _FLAGS.unsupported_share, description="Flagged where this share of letters is in other scripts."
    )
    at_risk_critical: Share | None = Field(
        None, description="Less probably kept is critical; absent: as the calibration has it for the input."
    )
    at_risk_warning: Share | None = Field(None, description="The same for a warning.")
    at_risk_info: Share | None = Field(None, description="The same for information.")
    scripts: list[str] = Field(sorted(_FLAGS.scripts), description="Scripts that the model can judge.")
    disabled: list[str] = Field([], description="Codes that are never raised.")

    @model_validator(mode="after")
    def _known_codes(self) -> FlagThresholdSettings:
        self.thresholds()
        return self

    def thresholds(self) -> FlagSettings:
        given = self.model_dump(exclude={"scripts", "disabled"})
        return FlagSettings(**given, scripts=frozenset(self.scripts), disabled=frozenset(self.disabled))
