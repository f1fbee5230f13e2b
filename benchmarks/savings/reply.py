"""One chat request over HTTP, and what its reply says of tokens, money and compression."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson

from benchmarks.load.exchange import EXCERPT, JSON_BODY, Call, Clock, Failed, completion, read_events

PATH = "/v1/chat/completions"
TOKENS = 8
CALL = Call(PATH, (), True, completion, TOKENS)
NANO = 10**9


@dataclass(frozen=True, slots=True)
class Reply:
    """`original_tokens` are those of the prompt had nothing been compressed; without compression they are
    `prompt_tokens`, which the engine saw. `compression_nano_usd` is charged beside `chat_nano_usd`."""

    prompt_tokens: int
    cached_tokens: int
    chat_nano_usd: int
    compression_nano_usd: int
    original_tokens: int
    status: str
    ttft_ms: float
    latency_ms: float
    blocks: Sequence[Mapping[str, Any]] = field(default=())

    @property
    def nano_usd(self) -> int:
        return self.chat_nano_usd + self.compression_nano_usd


def body_of(model: str, messages: Sequence[Mapping[str, Any]]) -> bytes:
    """A streamed, greedy request for exactly `TOKENS` tokens; nothing in it names compression."""
    return orjson.dumps(
        {
            "model": model, "messages": messages, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True,
            "stream": True, "stream_options": {"include_usage": True},
        }
    )  # fmt: skip


async def ask(session: aiohttp.ClientSession, body: bytes) -> Reply:
    """Send one request. Raises `Failed` for anything but a whole stream with figures."""
    clock = Clock(time.perf_counter())
    try:
        async with session.post(PATH, data=body, headers=JSON_BODY) as response:
            if response.status != 200:
                raise Failed(f"POST {PATH}: {response.status} {(await response.text())[:EXCERPT]}")
            event, arrivals = await read_events(response, CALL, clock=clock, due_s=0.0)
            latency_ms = 1000 * clock.now()
    except (aiohttp.ClientError, TimeoutError) as error:
        raise Failed(f"POST {PATH}: {type(error).__name__} {error}") from error
    try:
        return reply_of(orjson.loads(event), ttft_ms=arrivals[0], latency_ms=latency_ms)
    except (KeyError, TypeError, ValueError) as error:
        raise Failed(f"POST {PATH}: no figures in {event[:EXCERPT]!r} ({error!r})") from error


def reply_of(event: Mapping[str, Any], *, ttft_ms: float, latency_ms: float) -> Reply:
    """Raises `KeyError` for a reply without usage or billing."""
    usage, service = event["usage"], event["service"]
    compressed = service.get("compression") or {}
    return Reply(
        prompt_tokens=usage["prompt_tokens"],
        cached_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0),
        chat_nano_usd=round(NANO * service["billing"]["request_cost_usd"]),
        compression_nano_usd=round(NANO * compressed.get("cost_usd", 0)),
        original_tokens=compressed.get("original_tokens", usage["prompt_tokens"]),
        status=compressed.get("status", "off"),
        ttft_ms=ttft_ms,
        latency_ms=latency_ms,
        blocks=compressed.get("blocks", ()),
    )
