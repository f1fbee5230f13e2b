"""The client of the `pith` command and of `pith mcp`: who answers at the given address cannot fill its memory."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from serve.client import PithError, pith_client
from serve.client.pith_client import PithClient


@pytest.fixture
async def endless() -> AsyncIterator[str]:
    """The URL of a server whose every answer goes on for as long as somebody reads."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=200 if request.path == "/v1/compress" else 500)
        await response.prepare(request)
        while True:
            await response.write(b" " * 65_536)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def test_a_reply_without_an_end_is_given_up(endless: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pith_client, "MOST_REPLY_BYTES", 2**20)
    client = PithClient(endless, "key", deadline_s=60)
    with pytest.raises(PithError, match="more than 1,048,576 bytes"):
        await client.compress({})
    with pytest.raises(PithError, match="more than 1,048,576 bytes"):
        async for _ in client.chat({}):
            pass
