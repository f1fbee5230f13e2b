"""A message as Anthropic's clients read it, with what it was charged in `usage` and `service`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from models.engine import EngineRequest
from serve.chat.reply_form import EndedStream, checked_object
from serve.http.error_dialects import anthropic_body, anthropic_problem
from serve.http.errors import Problem

_DELTA = b"event: message_delta\n"


class MessageForm:
    """The `serve.chat.reply_form.ReplyForm` of one message."""

    holds_back_last = True

    def __init__(self, request_id: str) -> None:
        self._request_id = request_id

    def checked(self, data: bytes) -> dict[str, Any]:
        return checked_object(data, listed="content")

    def completed(self, reply: dict[str, Any], charged: Mapping[str, Any]) -> bytes:
        return orjson.dumps({**reply, **_charged(charged)})

    def closing(self, stream: EndedStream, charged: Mapping[str, Any]) -> bytes:
        events = stream.held_back.split(b"\n\n")
        return b"\n\n".join(_priced(each, charged) if each.startswith(_DELTA) else each for each in events)

    def error(self, problem: Problem, charged: Mapping[str, Any], request: EngineRequest) -> bytes:
        body = anthropic_body(anthropic_problem(problem), self._request_id)
        return b"event: error\ndata: " + orjson.dumps({**body, **_charged(charged)}) + b"\n\n"


def _priced(event: bytes, charged: Mapping[str, Any]) -> bytes:
    fields = orjson.loads(event.partition(b"\ndata: ")[2])
    return _DELTA + b"data: " + orjson.dumps({**fields, **_charged(charged)})


def _charged(charged: Mapping[str, Any]) -> dict[str, Any]:
    """In Anthropic's count `input_tokens` are those that no cache had."""
    if not charged:
        return {}
    usage = charged["usage"]
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    counted: dict[str, Any] = {
        "input_tokens": usage["prompt_tokens"] - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": usage["completion_tokens"],
    }
    if (reasoning := usage.get("completion_tokens_details")) is not None:
        counted["output_tokens_details"] = {"thinking_tokens": reasoning["reasoning_tokens"]}
    return {**charged, "usage": counted}
