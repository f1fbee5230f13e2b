"""How long responses of OpenAI's Responses API are kept for requests that refer to them."""

from pydantic import Field

from serve.config.strict_section import Section


class ResponseSettings(Section):
    store_s: int = Field(
        3600,
        ge=0,
        le=31 * 86_400,
        description="Seconds for which a response is kept, unless its request says `store: false`; 0: none is. No "
        "longer than `compression.retention.max_s`, and within its `max_mb_per_project`.",
    )
