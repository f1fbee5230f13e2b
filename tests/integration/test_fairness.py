"""Two projects at one real engine: one alone has all of it, and gives back what the other is owed; its replies and what
they cost stay what they are."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import aiohttp

from tests.integration.running import Server

# The engine has 64 places: some of what the first project has is taken back.
STREAMS = 60
NEWCOMERS = 20
LONG, SHORT = 250, 8
TIMEOUT = aiohttp.ClientTimeout(total=300)


@dataclass(frozen=True, slots=True)
class Streamed:
    text: str
    usage: dict[str, Any]


@dataclass(slots=True)
class Caller:
    session: aiohttp.ClientSession
    key: str
    # Streams that have ended.
    ended: int = 0

    async def stream(self, tokens: int, on_first: Callable[[], Awaitable[Any]] | None = None) -> Streamed:
        body = {
            "messages": [{"role": "user", "content": "Tell me about the ferry."}],
            "max_tokens": tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
        }
        headers = {"Authorization": f"Bearer {self.key}"}
        text, usage = "", {}
        async with self.session.post("/v1/chat/completions", json=body, headers=headers) as response:
            assert response.status == 200, await response.text()
            async for line in response.content:
                if not line.startswith(b"data: {"):
                    continue
                event = json.loads(line.removeprefix(b"data: "))
                usage = event.get("usage") or usage
                piece = "".join(choice["delta"].get("content") or "" for choice in event["choices"])
                if piece and not text and on_first is not None:
                    await on_first()
                text += piece
        self.ended += 1
        return Streamed(text, usage)


async def test_one_alone_has_every_place_and_a_newcomer_passes_it_while_its_replies_stay_the_same(
    server: Server,
) -> None:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(server.url, timeout=TIMEOUT, connector=connector) as session:
        many, few = (Caller(session, server.new_key(name)) for name in ("many-streams", "a-newcomer"))
        undisturbed = await many.stream(LONG)
        all_run = asyncio.Barrier(STREAMS + 1)
        streams = [asyncio.create_task(many.stream(LONG, all_run.wait)) for _ in range(STREAMS)]
        async with asyncio.timeout(120):
            await all_run.wait()
        ended = many.ended
        short = await asyncio.gather(*(few.stream(SHORT) for _ in range(NEWCOMERS)))
        # None of them waited for the end of what was there before.
        assert many.ended == ended
        replies = await asyncio.gather(*streams)
    assert all(reply.usage["completion_tokens"] == SHORT for reply in short)
    # Those that were paused too: token for token, and their prompts counted once.
    assert {reply.text for reply in replies} == {undisturbed.text}
    assert {reply.usage["prompt_tokens"] for reply in replies} == {undisturbed.usage["prompt_tokens"]}
    assert {reply.usage["completion_tokens"] for reply in replies} == {LONG}
