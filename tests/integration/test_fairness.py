"""Two projects at one real engine: what one keeps running does not keep the other's requests waiting."""

from __future__ import annotations

import asyncio

import aiohttp

from tests.integration.running import Server

STREAMS = 40
TIMEOUT = aiohttp.ClientTimeout(total=120)


def body(tokens: int, *, stream: bool) -> dict[str, object]:
    messages = [{"role": "user", "content": "Tell me about the ferry."}]
    return {"messages": messages, "max_tokens": tokens, "stream": stream, "ignore_eos": True}


async def read_stream(
    session: aiohttp.ClientSession, key: str, began: list[str], first: asyncio.Event
) -> None:
    headers = {"Authorization": f"Bearer {key}"}
    async with session.post("/v1/chat/completions", json=body(60, stream=True), headers=headers) as response:
        assert response.status == 200, await response.text()
        await response.content.readany()
        began.append("stream")
        first.set()
        await response.read()


async def test_another_projects_request_passes_the_streams_that_wait(server: Server) -> None:
    ours, theirs = server.new_key("many-streams"), server.new_key("one-request")
    began: list[str] = []
    first = asyncio.Event()
    async with aiohttp.ClientSession(
        server.url, timeout=TIMEOUT, connector=aiohttp.TCPConnector(limit=0)
    ) as session:
        streams = [asyncio.create_task(read_stream(session, ours, began, first)) for _ in range(STREAMS)]
        async with asyncio.timeout(60):
            await first.wait()
        headers = {"Authorization": f"Bearer {theirs}"}
        async with session.post(
            "/v1/chat/completions", json=body(4, stream=False), headers=headers
        ) as response:
            assert response.status == 200, await response.text()
            await response.read()
        # The engine has 64 sequences, and one project a part of them: the rest of its streams have waited meanwhile.
        assert 0 < len(began) < STREAMS
        await asyncio.gather(*streams)
    assert len(began) == STREAMS
