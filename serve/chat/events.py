"""The bytes that the service adds to an engine's reply: usage, billing and metering."""

from __future__ import annotations

import re
import time
from typing import Any

import orjson

from models.engine import TokenUsage
from models.errors import EngineFailed
from serve.http.errors import Problem
from serve.money.exchange import Receipt

MICRO = 10**6
NANO = 10**9
DONE = b"data: [DONE]\n\n"
_CREATED = re.compile(rb'"created":\s*(\d+)')


def service_block(receipt: Receipt) -> dict[str, Any]:
    """`{billing, metering}` of the contract. Money becomes a float here, and only here."""
    return {
        "billing": {
            "input_price_per_mtok": receipt.price.input_micro_usd_per_mtok / MICRO,
            "output_price_per_mtok": receipt.price.output_micro_usd_per_mtok / MICRO,
            "minimum_request_charge_usd": receipt.price.minimum_nano_usd / NANO,
            "minimum_applied": receipt.cost.minimum_applied,
            "request_cost_usd": receipt.cost.nano_usd / NANO,
        },
        "metering": {"persisted": receipt.settlement.persisted, "status": receipt.settlement.status},
    }


def usage_block(usage: TokenUsage) -> dict[str, int]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
    }


def checked_reply(data: bytes) -> dict[str, Any]:
    """The engine's chat completion object. Raises `EngineFailed` for bytes that are none."""
    try:
        reply = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise EngineFailed("the engine's reply is not JSON") from error
    if not isinstance(reply, dict) or not isinstance(reply.get("choices"), list) or not reply["choices"]:
        raise EngineFailed("the engine's reply is no chat completion")
    return reply


def completed_reply(reply: dict[str, Any], receipt: Receipt) -> bytes:
    """The whole JSON reply."""
    return orjson.dumps({**reply, "usage": usage_block(receipt.usage), "service": service_block(receipt)})


def final_events(receipt: Receipt, *, completion_id: str, model_id: str, first_event: bytes) -> bytes:
    """The usage event and the terminator of a stream, with the id and time that the stream's chunks carry."""
    created = _CREATED.search(first_event)
    chunk = {
        "id": f"chatcmpl-{completion_id}",
        "object": "chat.completion.chunk",
        "created": int(created[1]) if created else int(time.time()),
        "model": model_id,
        "choices": [],
        "usage": usage_block(receipt.usage),
        "service": service_block(receipt),
    }
    return b"data: " + orjson.dumps(chunk) + b"\n\n" + DONE


def error_event(problem: Problem, receipt: Receipt | None) -> bytes:
    """The last event of a stream that broke: what went wrong, and what was charged for what had been delivered."""
    body = problem.body()
    if receipt is not None:
        body |= {"usage": usage_block(receipt.usage), "service": service_block(receipt)}
    return b"data: " + orjson.dumps(body) + b"\n\n"
