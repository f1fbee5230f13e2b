"""How long texts of customers are kept: originals of compressed ones, and responses of OpenAI's Responses API."""

from pydantic import Field

from serve.config.strict_section import Section


class RetentionSettings(Section):
    max_s: int = Field(
        86_400,
        ge=0,
        le=31 * 86_400,
        description="Most seconds for which a request may have originals kept (`compression.retain_s`); 0: none.",
    )
    max_mb_per_project: int = Field(
        256,
        ge=1,
        le=1_000_000,
        description="Megabytes of text that one project's originals may have together.",
    )


class ResponseSettings(Section):
    store_s: int = Field(
        3600,
        ge=0,
        le=31 * 86_400,
        description="Seconds for which a response is kept, unless its request says `store: false`; 0: none is. No "
        "longer than `compression.retention.max_s`, and within its `max_mb_per_project`.",
    )
