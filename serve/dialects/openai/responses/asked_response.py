"""A response's body as the chat that the service checks, holds and generates, and what its reply repeats of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from models.errors import UnsupportedOption
from serve.dialects.openai.responses.items import Conversation
from serve.dialects.openai.responses.places import Places
from serve.dialects.openai.responses.response_body import ResponseChat, ResponseRequest
from serve.dialects.openai.responses.stored_responses import PlacedItem
from serve.dialects.openai.responses.tools import OfferedTools, chat_choice, offered_tools, shown_choice
from serve.http.request_body import InvalidBody, check_shape

LOGPROBS = "message.output_text.logprobs"
# Names and meanings are a chat's.
SAME = ("model", "stream")
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
    """`places` says where in the body a thing of the chat stands; `form_options` are the engine's."""

    chat: ResponseChat
    places: Places
    form_options: dict[str, Any]


def without_tools(form_options: Mapping[str, Any]) -> dict[str, Any]:
    """Of a model that ignores tools: the reply says that none were offered."""
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
        chat = check_shape(fields, ResponseChat)
    except InvalidBody as error:
        raise places.renamed(error) from None
    options = {"response": _repeated(body, offered, is_stored=is_stored), "namespaces": offered.namespaces}
    return AskedResponse(chat, places, options)


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
        "service_tier": "default",
        "store": is_stored,
        "text": {"format": text_format},
        "tool_choice": shown_choice(body.tool_choice),
        "tools": offered.shown,
        "top_logprobs": body.top_logprobs or 0,
        "truncation": "disabled",
        "user": body.user,
    }
