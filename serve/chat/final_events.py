"""The bytes that end a chat reply: usage, billing and metering, or the error that broke a stream off."""

import re
import time
from collections.abc import Mapping
from typing import Any

import orjson

from models.engine import EngineRequest
from serve.http.errors import Problem

DONE = b"data: [DONE]\n\n"
# How ids of a form begin, and what a piece of its stream is called.
_NAMES = {"chat": ("chatcmpl", "chat.completion.chunk"), "completion": ("cmpl", "text_completion")}
_CREATED = re.compile(rb'"created":\s*(\d+)')


def completed_reply(reply: dict[str, Any], charged: Mapping[str, Any]) -> bytes:
    """The whole JSON reply."""
    return orjson.dumps({**reply, **charged})


def final_events(charged: Mapping[str, Any], request: EngineRequest, first_event: bytes) -> bytes:
    """The usage event and the terminator of a stream."""
    return usage_event(charged, request, first_event) + DONE


def usage_event(charged: Mapping[str, Any], request: EngineRequest, first_event: bytes) -> bytes:
    """The usage of a stream, with the id and time that its chunks carry."""
    created = _CREATED.search(first_event)
    prefix, kind = _NAMES[request.form]
    chunk = {
        "id": f"{prefix}-{request.request_id}",
        "object": kind,
        "created": int(created[1]) if created else int(time.time()),
        "model": request.model_id,
        "choices": [],
        **charged,
    }
    return _event(chunk)


def error_event(problem: Problem, charged: Mapping[str, Any]) -> bytes:
    """The last event of a stream that broke: what went wrong, and what was charged for what had been delivered."""
    return _event({**problem.body(), **charged})


def _event(fields: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(fields) + b"\n\n"
