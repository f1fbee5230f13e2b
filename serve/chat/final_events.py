"""The bytes that end a chat reply: usage, billing and metering, or the error that broke a stream off."""

import re
import time
from typing import Any

import orjson

from models.engine import EngineRequest
from serve.http.errors import Problem
from serve.money.held_request import Receipt
from serve.money.service_block import charged_fields

DONE = b"data: [DONE]\n\n"
_CREATED = re.compile(rb'"created":\s*(\d+)')


def completed_reply(reply: dict[str, Any], receipt: Receipt) -> bytes:
    """The whole JSON reply."""
    return orjson.dumps({**reply, **charged_fields(receipt)})


def final_events(receipt: Receipt, request: EngineRequest, first_event: bytes) -> bytes:
    """The usage event and the terminator of a stream, with the id and time that the stream's chunks carry."""
    created = _CREATED.search(first_event)
    chunk = {
        "id": f"chatcmpl-{request.request_id}",
        "object": "chat.completion.chunk",
        "created": int(created[1]) if created else int(time.time()),
        "model": request.model_id,
        "choices": [],
        **charged_fields(receipt),
    }
    return _event(chunk) + DONE


def error_event(problem: Problem, receipt: Receipt | None) -> bytes:
    """The last event of a stream that broke: what went wrong, and what was charged for what had been delivered."""
    charged = charged_fields(receipt) if receipt is not None else {}
    return _event({**problem.body(), **charged})


def _event(fields: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(fields) + b"\n\n"
