"""The bodies of the compression routes, checked strictly, and the compressions that they ask for."""

import json
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import ConfigDict, Field, PlainValidator, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError, PydanticKnownError

from compression.conversation import fault_in
from compression.pipeline.compression_model import (
    LONGEST_SIZED_BYTES,
    MAX_SIZES,
    MOST_SIZED_UNITS,
    CompressionRequest,
    Size,
)
from serve.compressors.compressor import SizeOptions, refuse_beside
from serve.http.request_body import RequestShape
from serve.originals.originals import MAX_RETAIN_S
from serve.prompt_compression.options import PromptCompressionOptions

EXAMPLE: list[dict[str, Any]] = [
    {"role": "user", "content": "Is order 4417 on its way?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "order", "arguments": '{"id": 4417}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "Order 4417 left on 3 May. It has two parcels."},
]


def canonical(messages: Any) -> str:
    """The messages as JSON without white space, every field in its original order.

    Raises `PydanticCustomError` if it is not a conversation, and for numbers that JSON does not have.
    """
    fault = fault_in(messages) if isinstance(messages, list) else ": must be an array of messages"
    if fault is not None:
        raise PydanticCustomError("invalid_messages", "{fault}", {"fault": f"messages{fault}"})
    try:
        return json.dumps(messages, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        raise PydanticCustomError(
            "invalid_messages", "messages: contains a number that is too large"
        ) from None


# Validated, it is the text: the messages themselves are wanted no more.
MessagesText = Annotated[
    str,
    PlainValidator(
        canonical,
        json_schema_input_type=Annotated[list[dict[str, Any]], Field(min_length=1, examples=[EXAMPLE])],
    ),
]


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
_MESSAGES_ALONE_EXAMPLE: dict[str, Any] = {"model": "any-vendors-model", "messages": EXAMPLE}
Include = Literal["spans"]
MAX_INCLUDED = 8


class CompressOptions(SizeOptions):
    """Options of a compression: how much to keep, and in which order."""

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

    retain_s: int | None = Field(
        default=None,
        ge=0,
        le=MAX_RETAIN_S,
        description="Seconds for which the input can be fetched again at `/v1/compress/{id}/original`. Default: 0, not "
        "at all. A server may allow less; the demo keeps nothing.",
    )


class Asked(RequestShape):
    """Options of a single compression, or of all items of a batch."""

    compression: CompressOptions | None = Field(default=None, description="How to compress.")
    include: list[Include] | None = Field(
        default=None,
        max_length=MAX_INCLUDED,
        fail_fast=True,
        description="Extra fields to include in the response: `spans` adds `kept`.",
    )

    @model_validator(mode="before")
    @classmethod
    def _options_are_in_compression(cls, body: Any) -> Any:
        refuse_beside(body, cls.model_fields, CompressOptions.model_fields)
        return body


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
        """The one of the two that holds the context."""
        return "input" if self.messages is None else "messages"

    @property
    def context(self) -> str:
        """The text that is compressed."""
        return self.messages or self.input or ""


class CompressRequest(CompressInput):
    """One compression."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [_EXAMPLE, {"model": "example-compressor", **_EXAMPLE}, _MESSAGES_EXAMPLE]
        }
    )

    model: str | None = Field(default=None, max_length=256, description=_MODEL)
    sizes: list[SizeOptions] | None = Field(
        default=None,
        max_length=MAX_SIZES,
        description="Other sizes to tell of, each with `target_ratio` or `keep`: the response's `sizes` has what is "
        f"kept at each and its receipt, at the price of one compression. For an `input` of up to "
        f"{LONGEST_SIZED_BYTES:,} bytes, of which units times sizes are at most {MOST_SIZED_UNITS:,}, and models that "
        "keep whole units.",
    )

    @field_validator("sizes")
    @classmethod
    def _each_says_one(cls, sizes: list[SizeOptions] | None) -> list[SizeOptions] | None:
        for number, size in enumerate(sizes or ()):
            if size.target_ratio is None and size.keep is None:
                raise PydanticCustomError(
                    "no_size", "sizes[{number}]: needs target_ratio or keep", {"number": number}
                )
        return sizes


def _rows(messages: Any) -> list[dict[str, Any]]:
    """Messages that need be no conversation: clients hold back what they want left alone."""
    if not isinstance(messages, list) or not messages:
        raise PydanticCustomError("invalid_messages", "messages: must be an array that holds a message")
    for number, message in enumerate(messages):
        fault = _fault_in_row(message)
        if fault is not None:
            raise PydanticCustomError("invalid_messages", "{fault}", {"fault": f"messages[{number}]{fault}"})
    try:
        json.dumps(messages, allow_nan=False)
    except ValueError:
        raise PydanticCustomError(
            "invalid_messages", "messages: contains a number that is too large"
        ) from None
    return messages


def _fault_in_row(message: Any) -> str | None:
    if not isinstance(message, dict):
        return ": must be an object"
    if not isinstance(message.get("role"), str):
        return ".role: must be a string"
    if not isinstance(message.get("content"), str | list | None):
        return ".content: must be a string, null or an array of parts"
    return None


class CompressMessagesRequest(RequestShape):
    """Messages without a query: their long parts are compressed for what their place in the messages asks."""

    model_config = ConfigDict(json_schema_extra={"examples": [_MESSAGES_ALONE_EXAMPLE]})

    messages: Annotated[
        list[dict[str, Any]],
        PlainValidator(
            _rows,
            json_schema_input_type=Annotated[list[dict[str, Any]], Field(min_length=1, examples=[EXAMPLE])],
        ),
    ] = Field(description="Chat messages, each with its role. The response has as many, in their order.")
    model: str | None = Field(
        default=None,
        description="A compression model's id. Any other name, such as that of the model that is to read the "
        "messages, stands for the default.",
    )
    compression: PromptCompressionOptions | None = Field(
        default=None, description="How to compress; as in a chat request, but `scope` is `all` by default."
    )

    @model_validator(mode="before")
    @classmethod
    def _options_are_in_compression(cls, body: Any) -> Any:
        refuse_beside(body, cls.model_fields, PromptCompressionOptions.model_fields)
        return body


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


Value = TypeVar("Value")


def request_of(item: CompressInput, shared: Asked | None, *, default_ratio: float) -> CompressionRequest:
    """A ratio and a promise exclude each other: who says either leaves nothing of the batch's."""
    said = [
        asked.compression for asked in (item, shared) if asked is not None and asked.compression is not None
    ]
    ratio, keep = _first(said, _size_of) or (default_ratio, None)
    in_order = _first(said, lambda options: options.preserve_order)
    return CompressionRequest(
        query=item.query,
        input=item.context,
        target_ratio=ratio,
        preserve_order=True if in_order is None else in_order,
        keep=keep,
        mark_gaps=_first(said, lambda options: options.mark_gaps) or False,
        sizes=tuple(Size(size.target_ratio, size.keep) for size in _sizes_of(item)),
    )


def _sizes_of(item: CompressInput) -> list[SizeOptions]:
    return (item.sizes or []) if isinstance(item, CompressRequest) else []


def retain_s_of(item: CompressInput, shared: Asked | None) -> int:
    """Seconds for which the original is to be kept; 0: not at all."""
    said = [
        asked.compression for asked in (item, shared) if asked is not None and asked.compression is not None
    ]
    return _first(said, lambda options: options.retain_s) or 0


def wants_spans(item: CompressInput, shared: Asked | None) -> bool:
    """True if the response is to include the positions of the parts kept."""
    said = [asked.include for asked in (item, shared) if asked is not None and asked.include is not None]
    return bool(said) and "spans" in said[0]


def _size_of(options: CompressOptions) -> tuple[float | None, float | None] | None:
    if options.target_ratio is None and options.keep is None:
        return None
    return options.target_ratio, options.keep


def _first(said: list[CompressOptions], value_of: Callable[[CompressOptions], Value | None]) -> Value | None:
    return next((value for options in said if (value := value_of(options)) is not None), None)
