"""The body of `POST /openai/v1/responses`, and the chat that it asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, field_validator, model_validator
from pydantic_core import PydanticCustomError

from models.errors import InvalidField, UnsupportedOption
from serve.chat.message_shapes import STRICT, FunctionName, Objects
from serve.chat.request import AskedChat, null_turns_compression_off
from serve.dialects.documentation import with_meanings
from serve.dialects.openai.chat_completions import MAX_TOKENS_BOUND, WORDS, OpenAIChatRequest, choice_word
from serve.dialects.openai.responses.conversation import (
    Conversation,
    OfferedTools,
    Places,
    chat_choice,
    offered_tools,
    shown_choice,
)
from serve.dialects.openai.responses.stored_responses import PlacedItem
from serve.http.request_body import InvalidBody, RequestShape, at_most, check_shape

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
    """The form of the answer. `verbosity` has no effect."""

    model_config = ConfigDict(**STRICT, extra="ignore")

    format: TextFormat | None = None
    verbosity: Annotated[str, Field(max_length=64)] | None = None


class ReasoningOptions(BaseModel):
    """The effort of reasoning. Summaries are not made: readable reasoning comes whole."""

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

    _null_turns_compression_off = model_validator(mode="before")(null_turns_compression_off)

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
        """The properties that were sent beyond the fields above."""
        return dict(self.model_extra or {})


class ResponseChat(OpenAIChatRequest):
    """The chat that a response is. Its token limit caps what the prompt leaves, and never refuses a prompt."""

    def asked(self) -> AskedChat:
        return replace(super().asked(), takes_constraints=False, token_limit_field=None, form="response")


LOGPROBS = "message.output_text.logprobs"
# Options of a chat that OpenAI's responses do not have, and vLLM's do.
EXTRAS = frozenset(
    {
        "temperature",
        "top_p",
        "service_tier",
        "compression",
        "top_k",
        "min_p",
        "seed",
        "stop",
        "presence_penalty",
        "frequency_penalty",
        "repetition_penalty",
        "logit_bias",
        "min_tokens",
        "ignore_eos",
        "chat_template_kwargs",
    }
)
REFUSED: Mapping[str, str] = {
    "conversation": "conversations are not stored; send the items, or previous_response_id",
    "prompt": "prompt templates are not stored; send instructions and input",
    "context_management": "a conversation is not compacted here; see compression",
    "moderation": "the service does not moderate",
}


@dataclass(frozen=True, slots=True)
class AskedResponse:
    """`places` says where in the body a thing of the chat stands."""

    chat: AskedChat
    places: Places


def without_tools(form_options: Mapping[str, Any]) -> dict[str, Any]:
    """The options for a model that ignores tools: the reply says that none were offered."""
    return {**form_options, "response": {**form_options["response"], "tools": [], "tool_choice": "none"}}


def asked_response(body: ResponseRequest, items: Sequence[PlacedItem], *, is_stored: bool) -> AskedResponse:
    """`items` are the body's, and those that it refers to; `is_stored` says whether the response is to be kept.

    Raises `InvalidBody`, `InvalidField` or `UnsupportedOption`, which name the field of the body."""
    places = Places()
    _refuse(body)
    offered = offered_tools(body.tools, body.tool_choice, places)
    conversation = Conversation(places)
    if body.instructions is not None:
        conversation.instruct(body.instructions)
    for each in items:
        conversation.add(each.item, each.loc)
    fields = {"messages": conversation.messages, **_options(body, offered)}
    try:
        chat = check_shape(fields, ResponseChat).asked()
    except (InvalidBody, InvalidField) as error:
        raise places.renamed(error) from None
    options = {"response": _repeated(body, offered, is_stored=is_stored), "namespaces": offered.namespaces}
    return AskedResponse(replace(chat, form_options=options), places)


def _refuse(body: ResponseRequest) -> None:
    if body.background:
        raise UnsupportedOption("background", "no response is made in the background")
    for name, reason in REFUSED.items():
        if body.extras().get(name):
            raise UnsupportedOption(name, reason)


def _options(body: ResponseRequest, offered: OfferedTools) -> dict[str, Any]:
    options: dict[str, Any] = {
        "model": body.model,
        "stream": body.stream,
        "max_completion_tokens": body.max_output_tokens,
        "reasoning_effort": body.reasoning.effort,
        **{name: value for name, value in body.extras().items() if name in EXTRAS},
    }
    if body.text.format is not None:
        options["response_format"] = body.text.format.chat()
    if LOGPROBS in body.include:
        options |= {"logprobs": True, "top_logprobs": body.top_logprobs}
    if offered.chat or body.tool_choice is not None:
        options["tool_choice"] = chat_choice(body.tool_choice)
    if offered.chat:
        options |= {"tools": offered.chat, "parallel_tool_calls": body.parallel_tool_calls}
    return options


def _tier(body: ResponseRequest) -> str:
    asked = body.extras().get("service_tier")
    return "default" if asked in (None, "auto") else str(asked)


def _repeated(body: ResponseRequest, offered: OfferedTools, *, is_stored: bool) -> dict[str, Any]:
    """The properties of a response that say what was asked for, with OpenAI's defaults."""
    text_format = body.text.format.model_dump(exclude_none=True) if body.text.format else {"type": "text"}
    return {
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "max_tool_calls": body.max_tool_calls,
        "metadata": body.metadata,
        "parallel_tool_calls": body.parallel_tool_calls,
        "previous_response_id": body.previous_response_id,
        "prompt_cache_key": body.prompt_cache_key,
        "reasoning": {"effort": body.reasoning.effort, "summary": None},
        "safety_identifier": body.safety_identifier,
        "service_tier": _tier(body),
        "store": is_stored,
        "text": {"format": text_format},
        "tool_choice": shown_choice(body.tool_choice),
        "tools": offered.shown,
        "top_logprobs": body.top_logprobs or 0,
        "truncation": "disabled",
        "user": body.user,
    }
