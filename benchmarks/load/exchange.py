"""One request and its whole reply, JSON or server-sent events, with the times at which it arrived.

aiohttp and not httpx: measured against the same server on one core, a JSON request costs the client 0.12 ms of CPU
instead of 1.4 ms, a stream of 64 events 0.93 ms instead of 3.5 ms. The client shares the cores with what it measures.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson

from benchmarks.load.sample import Figures, Sample

JSON_BODY = {"Content-Type": "application/json"}
# An event with text. Matched, not parsed: every event of every side passes here.
TEXT = re.compile(rb'"content":\s*"[^"]')
USAGE = re.compile(rb'"usage":\s*\{')
ERROR = re.compile(rb'^data:\s*\{"error"')
DONE = b"data: [DONE]"
EXCERPT = 300


class Failed(RuntimeError):
    """A request did not get the reply that it must; the message says which and what came instead."""


@dataclass(frozen=True, slots=True)
class Call:
    """The requests of a measurement. `figures_of` reads a reply (of a stream: the event with usage)."""

    path: str
    bodies: tuple[bytes, ...]
    stream: bool
    figures_of: Callable[[Mapping[str, Any]], Figures]
    expected_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Clock:
    """When the measurement began, by `time.perf_counter`."""

    origin: float

    def now(self) -> float:
        return time.perf_counter() - self.origin


async def exchange(
    session: aiohttp.ClientSession, call: Call, body: bytes, *, clock: Clock, due_s: float, key: str = ""
) -> Sample:
    """Send one request, with this key instead of the session's. Raises `Failed` for any reply but a whole one that
    succeeded."""
    headers = {**JSON_BODY, **bearer(key)} if key else JSON_BODY
    try:
        async with session.post(call.path, data=body, headers=headers) as response:
            if response.status != 200:
                text = (await response.text())[:EXCERPT]
                raise Failed(f"POST {call.path}: {response.status} {text}")
            if call.stream:
                reply, arrivals = await read_events(response, call, clock=clock, due_s=due_s)
            else:
                reply, arrivals = await response.read(), ()
            done_s = clock.now()
    except (aiohttp.ClientError, TimeoutError) as error:
        raise Failed(f"POST {call.path}: {type(error).__name__} {error}") from error
    return Sample(due_s, 1000 * (done_s - due_s), figures(call, reply), arrivals)


def bearer(key: str) -> dict[str, str]:
    """The header that authorizes a request; none without a key."""
    return {"Authorization": f"Bearer {key}"} if key else {}


async def read_events(
    response: aiohttp.ClientResponse, call: Call, *, clock: Clock, due_s: float
) -> tuple[bytes, tuple[float, ...]]:
    """The event with usage, and when each event with text came. Raises `Failed` where the stream broke off."""
    arrivals: list[float] = []
    usage, rest, done = b"", b"", False
    async for piece in response.content.iter_any():
        came_ms = 1000 * (clock.now() - due_s)
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if TEXT.search(line):
                arrivals.append(came_ms)
            if USAGE.search(line):
                usage = line.strip().removeprefix(b"data:")
            elif ERROR.match(line):
                raise Failed(
                    f"POST {call.path}: the stream failed: {line[:EXCERPT].decode(errors='replace')}"
                )
            done = done or line.startswith(DONE)
    if not (done and usage and arrivals):
        raise Failed(
            f"POST {call.path}: the stream ended without {'usage' if done and arrivals else 'text or [DONE]'}"
        )
    return usage, tuple(arrivals)


def figures(call: Call, reply: bytes) -> Figures:
    """What the reply says of itself. Raises `Failed` where it says nothing, or not what was asked."""
    try:
        found = call.figures_of(orjson.loads(reply))
    except (KeyError, TypeError, ValueError) as error:
        said = reply[:EXCERPT].decode(errors="replace")
        raise Failed(f"POST {call.path}: no figures in the reply ({error!r}): {said}") from error
    if call.expected_tokens is not None and found.tokens != call.expected_tokens:
        raise Failed(f"POST {call.path}: {found.tokens} tokens instead of {call.expected_tokens}")
    return found


def completion(reply: Mapping[str, Any]) -> Figures:
    return Figures(int(reply["usage"]["completion_tokens"]))


def chat(model: str, *, tokens: int, stream: bool, prompts: int = 64, tier: str | None = None) -> Call:
    """Greedy chat completions of exactly so many tokens; the prompts differ, so that no cache has them all. `tier`: the
    service tier, where it is not the usual one."""
    bodies = tuple(
        orjson.dumps(
            {
                "model": model,
                "messages": [{"role": "user", "content": f"Story {number}: tell me about the river."}],
                "max_tokens": tokens,
                "temperature": 0,
                "ignore_eos": True,
                **({"stream": True, "stream_options": {"include_usage": True}} if stream else {}),
                **({"service_tier": tier} if tier else {}),
            }
        )
        for number in range(prompts)
    )
    return Call("/v1/chat/completions", bodies, stream, completion, tokens)
