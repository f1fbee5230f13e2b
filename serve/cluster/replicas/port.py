"""The private HTTP port of an engine's replica, for the ingress alone: it requires the replica's token."""

import hmac
import logging
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from models.engine import EngineChunk, EngineFault, EngineRequest
from serve.cluster.replicas.aiohttp_insides import LateHead
from serve.cluster.replicas.wire import GENERATE_PATH, frame, is_last, read_request

# Longer than the ingress keeps an idle connection, so that none is closed while a request is on its way.
KEEP_ALIVE_S = 3600.0
# Under this key Ray's handles know a replica's address.
ADDRESS_KEY = "pith_port"
BACKLOG = 4096
Generate = Callable[[EngineRequest], AsyncGenerator[EngineChunk | EngineFault, None]]
logger = logging.getLogger("pith.replica_port")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a replica listens and what it wants to hear."""

    url: str
    token: str


class ReplicaPort:
    """Serves `generate` over HTTP. A client that closes its connection ends its generation."""

    def __init__(self, generate: Generate) -> None:
        self._generate = generate
        self._token = secrets.token_urlsafe(32)
        self._expected = f"Bearer {self._token}".encode()
        self._runner: web.ServerRunner | None = None

    async def open(self, host: str) -> Address:
        """Listen on any free port of `host`. Raises `OSError`."""
        server = web.Server(
            self._answer, handler_cancellation=True, access_log=None, keepalive_timeout=KEEP_ALIVE_S
        )
        # Its own time for running requests would be a minute; who closes it bounds that.
        self._runner = web.ServerRunner(server, shutdown_timeout=KEEP_ALIVE_S)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, 0, backlog=BACKLOG)
        await site.start()
        address, port = self._runner.addresses[0][:2]
        return Address(f"http://{f'[{address}]' if ':' in address else address}:{port}", self._token)

    async def close(self) -> None:
        """Take no more requests, and return when the running ones have ended."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if not self._knows(request):
            return web.Response(status=401)
        if request.path != GENERATE_PATH or request.method != "POST":
            return web.Response(status=404)
        # Not `request.read()`, which stops at a megabyte: the ingress bounded the body.
        asked = read_request(await request.content.read())
        return await self._send(request, self._generate(asked))

    def _knows(self, request: web.BaseRequest) -> bool:
        # Of the bytes as they came: they need not be UTF-8, nor stand there once.
        given = [value for name, value in request.raw_headers if name.lower() == b"authorization"]
        return len(given) == 1 and hmac.compare_digest(given[0], self._expected)

    async def _send(
        self, request: web.BaseRequest, items: AsyncGenerator[EngineChunk | EngineFault, Any]
    ) -> web.StreamResponse:
        response = LateHead()
        async with aclosing(items):
            async for item in items:
                if not response.prepared:
                    await response.prepare(request)
                if is_last(item):
                    await response.write_eof(frame(item))
                    return response
                await response.write(frame(item))
        # A reply that ends without its last item: the ingress must not take it for whole.
        logger.error("a generation ended without its last item")
        if request.transport is not None:
            request.transport.close()
        return response
