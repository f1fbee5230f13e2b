"""A request for a message as the chat that it asks for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from models.catalog import ChatModel
from models.engine import CONTINUES
from models.errors import InvalidField, UnsupportedOption
from serve.dialects.anthropic.conversation import chat_turns
from serve.dialects.anthropic.message_body import AnthropicRequest, AnthropicThinking
from serve.dialects.anthropic.offered_tools import tool_options
from serve.prompt_compression.options import PromptCompressionOptions

EFFORTS = ("low", "medium", "high", "xhigh", "max")
# Tokens of thinking up to which an effort is low, or medium.
LOW, MEDIUM = 4096, 16_384
_SAMPLING = ("temperature", "top_p", "top_k", "chat_template_kwargs")
_MESSAGE = re.compile(r"messages\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class AskedMessage:
    """The `serve.chat.asked.AskedChat` of a message. `origins` are the turns that its messages were made of."""

    model: str
    stream: bool
    compression: PromptCompressionOptions | Literal[False] | None
    token_limit: int
    messages: list[dict[str, Any]]
    options: dict[str, Any]
    origins: Sequence[int]
    default_temperature: float | None = None
    drops_effort: bool = True
    takes_constraints: bool = False
    # The limit caps what the prompt leaves, and is never too much for the context.
    token_limit_field: Literal["max_tokens", "max_completion_tokens"] | None = None

    @property
    def form_options(self) -> dict[str, Any]:
        """A last message of the assistant's is the beginning of the reply."""
        last = self.messages[-1] if self.messages else {}
        is_begun = last.get("role") == "assistant" and last.get("content") and not last.get("tool_calls")
        return {CONTINUES: True} if is_begun else {}

    def option_fields(self) -> dict[str, Any]:
        return self.options

    def message_fields(self) -> list[dict[str, Any]]:
        return self.messages

    def renamed(self, error: InvalidField | UnsupportedOption) -> InvalidField | UnsupportedOption:
        """An error of the chat, at the place in the caller's own body."""
        if isinstance(error, UnsupportedOption):
            found = _MESSAGE.match(error.option)
            place = self._place(int(found[1])) if found else (error.option,)
            return UnsupportedOption(".".join(map(str, place)), error.reason)
        if error.loc[0] == "messages" and len(error.loc) > 1 and isinstance(error.loc[1], int):
            return InvalidField(self._place(error.loc[1]), error.message, kind=error.kind)
        if error.loc[0] == "tools" and error.loc[2:4] == ("function", "parameters"):
            loc = ("tools", error.loc[1], "input_schema", *error.loc[4:])
            return InvalidField(loc, error.message, kind=error.kind)
        if error.loc[0] == "response_format":
            loc = ("output_config", "format", *error.loc[2:])
            return InvalidField(loc, error.message, kind=error.kind)
        return error

    def _place(self, message: int) -> tuple[str | int, ...]:
        origin = self.origins[message] if message < len(self.origins) else -1
        return ("messages", origin, "content") if origin >= 0 else ("system",)


def asked_message(body: AnthropicRequest, model: ChatModel) -> AskedMessage:
    """Raises `InvalidField` or `UnsupportedOption` for what cannot be asked of a chat."""
    if body.mcp_servers:
        raise UnsupportedOption("mcp_servers", "this service calls no other; give the tools themselves")
    turns = chat_turns(body, takes_images="image_url" in model.capabilities.media)
    return AskedMessage(
        model=model.id,
        stream=body.stream,
        compression=body.compression,
        token_limit=min(body.max_tokens or model.context_length, model.context_length),
        messages=turns.messages,
        options=_options(body, model),
        origins=turns.origins,
    )


def _options(body: AnthropicRequest, model: ChatModel) -> dict[str, Any]:
    options = {name: value for name in _SAMPLING if (value := getattr(body, name)) is not None}
    if body.stop_sequences:
        options["stop"] = body.stop_sequences
    output = body.output_config
    if output is not None and output.format is not None:
        schema = {"name": "output", "schema": output.format.schema_}
        options["response_format"] = {"type": "json_schema", "json_schema": schema}
    effort = (output.effort if output is not None else None) or _effort(body.thinking)
    if effort in EFFORTS and model.capabilities.reasoning_effort:
        options["reasoning_effort"] = effort
    return options | tool_options(body)


def _effort(thinking: AnthropicThinking | None) -> str | None:
    if thinking is None or thinking.type not in ("enabled", "disabled"):
        return None
    budget = thinking.budget_tokens or 0
    # What is off is low: not every model that reasons can be kept from it.
    return "low" if budget < LOW else "medium" if budget < MEDIUM else "high"
