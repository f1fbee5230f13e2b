"""How a chat's prompt is compressed: `compression` of a request, or a project's default."""

from typing import Literal

from pydantic import ConfigDict, Field

from serve.compressors.size_options import SizeOptions
from serve.originals.retention import MAX_RETAIN_S

MAX_MIN_TOKENS = 1_000_000

Scope = Literal["marked", "all"]
OnFailure = Literal["whole", "refuse"]


class PromptCompressionOptions(SizeOptions):
    """How the long parts of a chat's prompt are compressed. An absent option is as in the project's default."""

    model: str | None = Field(
        default=None,
        max_length=256,
        description="A compression model's id. Default: this server's first.",
    )
    scope: Scope | None = Field(
        default=None,
        description="`marked`, the default: tool results and text parts with `compress: true`. `all`: also every text "
        "of a user message but its last.",
    )
    min_tokens: int | None = Field(
        default=None,
        ge=1,
        le=MAX_MIN_TOKENS,
        description="Parts with fewer tokens than this are sent as they are.",
    )
    on_failure: OnFailure | None = Field(
        default=None,
        description="What to do if the compression model fails: `whole`, the default, sends the prompt uncompressed; "
        "`refuse` answers 503.",
    )
    mark_gaps: bool | None = Field(
        default=None,
        description="True puts `[…]` where something was left out of a part between two kept pieces; the marks are "
        "counted. False is the default.",
    )
    holdout: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Share of conversations that are sent uncompressed, to measure the saving against. Default: 0.",
    )
    retain_s: int | None = Field(
        default=None,
        ge=0,
        le=MAX_RETAIN_S,
        description="Seconds for which the originals of compressed parts can be fetched again. Default: 0, not at all.",
    )


class ProjectCompression(PromptCompressionOptions):
    """A project's default."""

    model_config = ConfigDict(frozen=True)
