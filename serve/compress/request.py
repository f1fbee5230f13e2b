"""What the compression routes take, checked strictly. What they answer: `serve/compress/response.py`."""

from typing import Annotated, Any, Literal

from pydantic import (
    ConfigDict,
    Field,
    PlainValidator,
    ValidationInfo,
    field_validator,
)
from pydantic_core import PydanticCustomError, PydanticKnownError

from serve.compress.messages import EXAMPLE, MessagesText
from serve.http.body import RequestShape

MAX_ITEMS = 256
MAX_ID_CHARS = 256

_MODEL = "A compression model's id. Default: this server's first."
_OPTIONS_EXAMPLE: dict[str, Any] = {"target_ratio": 0.25, "preserve_order": True}
_EXAMPLE: dict[str, Any] = {
    "query": "When does the warranty end?",
    "input": "The pump ships with a filter. The warranty ends after two years. Spare parts are listed below.",
    "compression": _OPTIONS_EXAMPLE,
}
_MESSAGES_EXAMPLE: dict[str, Any] = {
    "query": "Is order 4417 on its way?",
    "messages": EXAMPLE,
    "compression": {"target_ratio": 0.5},
    "include": ["spans"],
}
Include = Literal["spans"]


class CompressOptions(RequestShape):
    """How much to keep, and in which order."""

    target_ratio: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Maximum of output tokens / input tokens. 1 returns the input unchanged. Default: the model's. "
        "A model may have narrower bounds.",
    )
    keep: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="Instead of `target_ratio`: the minimum probability that the evidence is kept; the output is as "
        "small as that allows. A model without a calibration refuses it.",
    )
    mark_gaps: bool | None = Field(
        default=None,
        description="True puts `[…]` where something was left out between two kept parts; the marks are counted. Of "
        "JSON only the insides of strings are marked. False is the default.",
    )
    preserve_order: bool | None = Field(
        default=None,
        description="True, the default, keeps the order of the source. False puts whole documents or paragraphs in "
        "order of relevance.",
    )

    @field_validator("keep")
    @classmethod
    def _is_the_only_size(cls, keep: float | None, info: ValidationInfo) -> float | None:
        if keep is not None and info.data.get("target_ratio") is not None:
            raise PydanticCustomError("two_sizes", "keep cannot be given together with target_ratio")
        return keep


class Asked(RequestShape):
    """Options of a single compression, or of all items of a batch."""

    compression: CompressOptions | None = Field(default=None, description="How to compress.")
    include: list[Include] | None = Field(
        default=None,
        description="Extra fields to include in the response: `spans` adds `kept`.",
    )


class CompressInput(Asked):
    """A context and the question for which it is compressed."""

    query: str = Field(
        description="The question that the context is to answer. Empty is allowed, and flagged."
    )
    messages: MessagesText | None = Field(
        default=None,
        description="Instead of `input`: chat messages, each with its role; unknown fields are kept unchanged. The "
        "response has `messages` too. Their JSON without white space is what is compressed and counted.",
    )
    input: str | None = Field(
        default=None,
        validate_default=True,
        min_length=1,
        description="The context: documents, a ticket's history, an agent's trace. Exactly one of `input` and "
        "`messages` is needed.",
    )

    @field_validator("input")
    @classmethod
    def _is_the_only_context(cls, text: str | None, info: ValidationInfo) -> str | None:
        if text is None and info.data.get("messages", "") is None:
            raise PydanticKnownError("missing")
        if text is not None and info.data.get("messages") is not None:
            raise PydanticCustomError("two_contexts", "input cannot be given together with messages")
        return text

    @property
    def context_field(self) -> Literal["input", "messages"]:
        """Which of the two holds the context."""
        return "input" if self.messages is None else "messages"

    @property
    def context(self) -> str:
        """What is compressed."""
        return self.messages or self.input or ""


class CompressRequest(CompressInput):
    """One compression."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [_EXAMPLE, {"model": "example-compressor", **_EXAMPLE}, _MESSAGES_EXAMPLE]
        }
    )

    model: str | None = Field(default=None, max_length=256, description=_MODEL)


class BatchItem(CompressInput):
    """One compression of a batch."""

    id: str | None = Field(
        default=None, max_length=MAX_ID_CHARS, description="Your name for the item; its result carries it."
    )


# Items are checked one by one, later: a bad one must not fail the others.
_Items = Annotated[
    list[Annotated[Any, PlainValidator(lambda value: value, json_schema_input_type=BatchItem)]],
    Field(min_length=1, max_length=MAX_ITEMS),
]


class BatchCompressRequest(Asked):
    """Up to 256 compressions with one model. What an item says itself comes before what is said for all."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"compression": _OPTIONS_EXAMPLE, "items": [{"id": "a", **_EXAMPLE}]}]
        }
    )

    model: str | None = Field(default=None, max_length=256, description=_MODEL)
    items: _Items = Field(description="Each is answered separately: a bad one does not fail the others.")
