"""Thresholds of the risk flags as a configuration file has them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from compression.flags import FlagSettings
from serve.config.strict_section import Section

Share = Annotated[float, Field(ge=0, le=1)]
_FLAGS = FlagSettings()


class FlagThresholdSettings(Section):
    aggressive_ratio: Share = Field(
        _FLAGS.aggressive_ratio, description="A target ratio below this is flagged."
    )
    short_input_tokens: int = Field(
        _FLAGS.short_input_tokens, ge=0, le=1_000_000, description="An input of fewer tokens is flagged."
    )
    low_relevance: Share = Field(
        _FLAGS.low_relevance, description="Flagged if no unit scores at least this, from 0 to 1."
    )
    borderline_share: Share = Field(
        _FLAGS.borderline_share, description="Flagged if the dropped units have this share of the odds."
    )
    query_terms_share: Share = Field(
        _FLAGS.query_terms_share,
        description="Flagged if the output has a smaller share of the query's terms.",
    )
    unsupported_share: Share = Field(
        _FLAGS.unsupported_share, description="Flagged if this share of the letters is in other scripts."
    )
    at_risk_critical: Share | None = Field(
        None, description="Below this probability the flag is critical; default: the calibration's."
    )
    at_risk_warning: Share | None = Field(
        None, description="The same for a warning; default: the calibration's."
    )
    at_risk_info: Share | None = Field(
        None, description="The same for information; default: the calibration's."
    )
    scripts: list[str] = Field(sorted(_FLAGS.scripts), description="Scripts that the model can judge.")
    disabled: list[str] = Field([], description="Codes that are never raised.")

    @model_validator(mode="after")
    def _known_codes(self) -> FlagThresholdSettings:
        self.thresholds()
        return self

    def thresholds(self) -> FlagSettings:
        given = self.model_dump(exclude={"scripts", "disabled"})
        return FlagSettings(**given, scripts=frozenset(self.scripts), disabled=frozenset(self.disabled))
