"""What may be sent to `POST /openai/v1/responses`: OpenAI's fields. The rest is a chat's options, or has no effect."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, field_validator, model_validator
from pydantic_core import PydanticCustomError

from serve.chat.message_shapes import STRICT, FunctionName, Objects
from serve.dialects.meanings import with_meanings
from serve.dialects.openai.chat_completions import MAX_TOKENS_BOUND, OpenAIChatRequest
from serve.dialects.openai.tool_choice import WORDS, choice_word
from serve.http.request_body import RequestShape, at_most

MAX_ITEMS = 4096
MAX_TOOLS = 128

Include = Annotated[list[Annotated[str, Field(max_length=64)]], Field(max_length=16, fail_fast=True)]
Label = Annotated[str, Field(max_length=512)]
MOST_METADATA = 16
Metadata = Annotated[
    dict[Annotated[str, Field(max_length=64)], Label], Field(max_length=MOST_METADATA), at_most(MOST_METADATA)
]


def _input(value: Any) -> str | list[dict[str, Any]]:
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise PydanticCustomError("input_type", "Input should be a string or a list of objects")
    if not 0 < len(value) <= MAX_ITEMS:
        raise PydanticCustomError("input_length", "Input should have 1 to {most} items", {"most": MAX_ITEMS})
    return value


class TextFormat(BaseModel):
    """The form of the answer."""

    model_config = ConfigDict(**STRICT, extra="ignore", serialize_by_alias=True)

    type: Literal["text", "json_object", "json_schema"]
    name: FunctionName | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None

    def chat(self) -> dict[str, Any]:
        """The same as a chat's `response_format`."""
        if self.type != "json_schema":
            return {"type": self.type}
        given = self.model_dump(exclude={"type"}, exclude_none=True)
        return {"type": self.type, "json_schema": given}


class TextOptions(BaseModel):
    """How the answer is written. `verbosity` has no effect."""

    model_config = ConfigDict(**STRICT, extra="ignore")

    format: TextFormat | None = None
    verbosity: Annotated[str, Field(max_length=64)] | None = None


class ReasoningOptions(BaseModel):
    """How much to reason. Summaries are not made: readable reasoning comes whole."""

    model_config = ConfigDict(**STRICT, extra="ignore")

    effort: Annotated[str, Field(max_length=64)] | None = None
    summary: Annotated[str, Field(max_length=64)] | None = None


class ResponseRequest(RequestShape):
    """A response to create. `null` counts as absent; properties unknown to us have no effect."""

    model_config = ConfigDict(extra="allow", json_schema_extra=with_meanings)

    input: Annotated[str | list[dict[str, Any]], PlainValidator(_input)]
    model: str | None = Field(default=None, max_length=256)
    instructions: str | None = None
    tools: Objects = Field(default=[], max_length=MAX_TOOLS)
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = None
    text: TextOptions = TextOptions()
    reasoning: ReasoningOptions = ReasoningOptions()
    max_output_tokens: int | None = Field(default=None, ge=1, le=MAX_TOKENS_BOUND)
    max_tool_calls: int | None = Field(default=None, ge=0, le=2**31 - 1)
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    include: Include = Field(default=[])
    metadata: Metadata = Field(default={})
    stream: bool = False
    store: bool | None = None
    previous_response_id: Annotated[str, Field(max_length=64)] | None = None
    background: bool = False
    truncation: Literal["auto", "disabled"] = "disabled"
    parallel_tool_calls: bool = True
    prompt_cache_key: Label | None = None
    safety_identifier: Label | None = None
    user: Label | None = None

    @model_validator(mode="before")
    @classmethod
    def _null_turns_compression_off(cls, body: Any) -> Any:
        # As in a chat, where absent means the project's default.
        if isinstance(body, dict) and "compression" in body and body["compression"] is None:
            return {**body, "compression": False}
        return body

    @field_validator("tool_choice", mode="plain")
    @classmethod
    def _word_or_object(cls, value: Any) -> Any:
        # A plain union would add its branch's name to the path.
        choice = choice_word(value)
        if isinstance(choice, dict) or (isinstance(choice, str) and choice in WORDS):
            return choice
        raise PydanticCustomError("tool_choice", "Input should be 'none', 'auto', 'required' or an object")

    def items(self) -> list[dict[str, Any]]:
        """The input as items."""
        return [{"role": "user", "content": self.input}] if isinstance(self.input, str) else self.input

    def extras(self) -> dict[str, Any]:
        """What was sent beyond the fields above."""
        return dict(self.model_extra or {})


class ResponseChat(OpenAIChatRequest):
    """The chat that a response is. Its token limit caps what the prompt leaves, and never refuses a prompt."""

    takes_constraints: ClassVar[bool] = False

    @property
    def token_limit_field(self) -> None:
        return None
