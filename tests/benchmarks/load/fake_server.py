"""A fake inference server, so that the benchmarks run without an engine: it counts, waits and fails as it is told."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass
class FakeServer:
    """Knobs: time a token, an error from the nth request on, what a stream leaves out, tokens too few."""

    token_s: float = 0.0
    compress_s: float = 0.0
    compress_char_s: float = 0.0
    fails_from: int | None = None
    omits: str | None = None
    missing_tokens: int = 0
    context_length: int = 512
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    busy: int = 0
    most_busy: int = 0
    url: str = ""

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await self._take(request)
        self.busy += 1
        self.most_busy = max(self.most_busy, self.busy)
        try:
            return await (self._stream(request, body) if body.get("stream") else self._reply(body))
        finally:
            self.busy -= 1

    async def _take(self, request: web.Request) -> dict[str, Any]:
        body: dict[str, Any] = await request.json()
        self.requests.append(body)
        self.keys.add(request.headers.get("Authorization", ""))
        if self.fails_from is not None and len(self.requests) >= self.fails_from:
            raise web.HTTPServiceUnavailable(text="the fake server is told to fail")
        return body

    async def _reply(self, body: dict[str, Any]) -> web.Response:
        tokens = body["max_tokens"] - self.missing_tokens
        await asyncio.sleep(self.token_s * tokens)
        prompt_tokens = sum(len(message["content"].split()) for message in body["messages"])
        return web.json_response({"usage": {"prompt_tokens": prompt_tokens, "completion_tokens": tokens}})

    async def _stream(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n')
        for _ in range(body["max_tokens"]):
            await asyncio.sleep(self.token_s)
            await response.write(b'data: {"choices":[{"delta":{"content":"a word"}}],"usage":null}\n\n')
        events = {
            "usage": b'data: {"choices":[],"usage":{"completion_tokens":%d}}\n\n' % body["max_tokens"],
            "done": b"data: [DONE]\n\n",
        }
        if self.omits == "everything":
            events = {"error": b'data: {"error":{"message":"the fake engine broke"}}\n\n'}
        # In halves: an event may arrive in pieces.
        for event in (event for name, event in events.items() if name != self.omits):
            await response.write(event[:9])
            await asyncio.sleep(0)
            await response.write(event[9:])
        return response

    async def compress(self, request: web.Request) -> web.Response:
        body = await self._take(request)
        await asyncio.sleep(self.compress_s + self.compress_char_s * len(body["input"]))
        tokens, ratio = len(body["input"].split()), body["compression"]["target_ratio"]
        receipt = {
            "original_tokens": tokens,
            "compression_ratio": ratio,
            "latency_ms": 1000 * self.compress_s,
        }
        return web.json_response({"output": "", "receipt": receipt})

    async def catalog(self, request: web.Request) -> web.Response:
        return web.json_response({"models": [{"id": "fake", "context_length": self.context_length}]})

    async def health(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    @asynccontextmanager
    async def listening(self, port: int = 0) -> AsyncIterator[FakeServer]:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self.chat)
        app.router.add_post("/v1/compress", self.compress)
        app.router.add_get("/health", self.health)
        app.router.add_get("/v1/catalog", self.catalog)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            await runner.cleanup()


async def serve(port: int, server: FakeServer) -> None:
    """Until the process is told to stop."""
    async with server.listening(port):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), FakeServer(token_s=float(sys.argv[2]))))
