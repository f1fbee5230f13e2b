"""The body of `POST /anthropic/v1/messages` and of `count_tokens`. What is not named has no effect."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, TypeAdapter, model_validator
from pydantic_core import PydanticCustomError

from serve.chat.message_shapes import STRICT, Objects
from serve.chat.request import Compression, ManyStopStrings, Probability, null_turns_compression_off
from serve.dialects.documentation import with_meanings
from serve.http.request_body import RequestShape

MAX_MESSAGES = 4096
MAX_TOOLS = 256
MAX_TOKENS_BOUND = 2**24
_UNSET_AT_MINUS_ONE = ("top_p", "top_k")

_OBJECTS: TypeAdapter[list[dict[str, Any]]] = TypeAdapter(Objects, config=STRICT)


def _text_or_blocks(value: Any) -> Any:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return _OBJECTS.validate_python(value)
    raise PydanticCustomError("content_type", "Input should be a string or a list of blocks")


Content = Annotated[
    str | list[dict[str, Any]],
    PlainValidator(_text_or_blocks, json_schema_input_type=str | list[dict[str, Any]]),
]


class AnthropicTurn(BaseModel):
    """One turn of the conversation."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)

    role: Literal["user", "assistant", "system"]
    content: Content


class AnthropicToolChoice(BaseModel):
    """The choice of tools: the model may, must or must not use one, or must use this one."""

    model_config = STRICT

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = Field(default=None, max_length=256)
    disable_parallel_tool_use: bool | None = None

    @model_validator(mode="after")
    def _names_a_tool(self) -> "AnthropicToolChoice":
        if self.type == "tool" and not self.name:
            raise PydanticCustomError("missing", "name is required when the type is tool")
        return self


class AnthropicThinking(BaseModel):
    """Permission to think before the answer, and for how many tokens."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)

    type: str = Field(max_length=64)
    budget_tokens: int | None = Field(default=None, ge=0)


class AnthropicFormat(BaseModel):
    """The schema that the answer must obey."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)

    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class AnthropicOutput(BaseModel):
    """The effort of thinking, and the form of the answer."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)

    effort: str | None = Field(default=None, max_length=64)
    format: AnthropicFormat | None = None


class AnthropicRequest(RequestShape):
    """A conversation, and what the model may do with it. `null` counts as absent."""

    model_config = ConfigDict(json_schema_extra=with_meanings)

    messages: list[AnthropicTurn] = Field(min_length=1, max_length=MAX_MESSAGES)
    model: str | None = Field(default=None, max_length=256)
    system: Content | None = None
    tools: Objects | None = Field(default=None, max_length=MAX_TOOLS)
    tool_choice: AnthropicToolChoice | None = None
    thinking: AnthropicThinking | None = None
    output_config: AnthropicOutput | None = None
    mcp_servers: list[Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    # Not needed to count tokens; a reply without it gets what the prompt leaves of the context.
    max_tokens: int | None = Field(default=None, ge=1, le=MAX_TOKENS_BOUND)
    stop_sequences: ManyStopStrings | None = None
    stream: bool = False
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: Probability | None = None
    top_k: int | None = Field(default=None, ge=-1, le=2**31 - 1)
    compression: Compression | None = None

    @model_validator(mode="before")
    @classmethod
    def _minus_one_counts_as_absent(cls, body: Any) -> Any:
        # LangChain.js sends it for what was not set.
        if not isinstance(body, dict):
            return body
        return {name: value for name, value in body.items() if name not in _UNSET_AT_MINUS_ONE or value != -1}

    _null_turns_compression_off = model_validator(mode="before")(null_turns_compression_off)
