"""The requests of a burst: short JSON, a stream, and a prompt that nearly fills the model's context."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import aiohttp
import orjson

from benchmarks.load.exchange import Call, Failed, chat
from benchmarks.load.loop import Target
from benchmarks.load.text import made_up

KINDS = ("json", "sse", "long")
# Of the context, so that no prompt is over it: the texts differ by a number each.
LONG_SHARE = 0.95
SAMPLE_CHARACTERS = 3000


async def call_of(kind: str, target: Target, model: str, *, tokens: int, requests: int) -> Call:
    """The requests of a kind, each with a prompt of its own. Raises `Failed`."""
    plain = chat(model, tokens=tokens, stream=kind == "sse", prompts=requests)
    if kind != "long":
        return plain
    characters = await long_prompt_characters(target, model, tokens=tokens)
    text = made_up(characters)[:characters]
    bodies = (request(model, f"Copy {number}. {text}", tokens) for number in range(requests))
    return replace(plain, bodies=tuple(map(orjson.dumps, bodies)))


def request(model: str, prompt: str, tokens: int) -> Mapping[str, Any]:
    messages = [{"role": "user", "content": prompt}]
    return {"model": model, "messages": messages, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}


async def long_prompt_characters(target: Target, model: str, *, tokens: int) -> int:
    """How much text fills `LONG_SHARE` of what the context leaves beside the reply, by the server's own count."""
    async with target.session() as session:
        context = await context_length(session, model)
        sample = made_up(min(SAMPLE_CHARACTERS, context))
        body = request(model, sample, 1)
        async with session.post("/v1/chat/completions", json=body) as response:
            reply = await response.json()
        if response.status != 200:
            raise Failed(f"a prompt of {len(sample)} characters: {response.status} {reply}")
    return int(LONG_SHARE * (context - tokens) * len(sample) / reply["usage"]["prompt_tokens"])


async def context_length(session: aiohttp.ClientSession, model: str) -> int:
    async with session.get("/v1/catalog") as response:
        models = (await response.json())["models"]
    found = [int(one["context_length"]) for one in models if one["id"] == model]
    if not found:
        raise Failed(f"GET /v1/catalog names no model {model!r}")
    return found[0]
