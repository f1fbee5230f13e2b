"""The ports of a server as an attacker finds them: each the real one, in this process, with short times."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp, Receive, Scope, Send

from models.engine import EngineRequest
from models.fake_engine import FakeEngine
from serve.cluster.replicas.address import Address
from serve.cluster.replicas.pool import ReplicaClient
from serve.cluster.replicas.port import ReplicaPort
from serve.config.settings import Settings
from serve.http.middleware import BodyLimitMiddleware
from serve.ops.app import open_ops
from tests.integration.running import free_port
from tests.serve.http.serving import WAIT_S, FakeApplication, Raw, listening
from tests.serve.served import settings_document

TIMES = {"idle_timeout_s": 1.5, "head_timeout_s": 1, "body_timeout_s": 1, "send_timeout_s": 60}
CONNECTIONS = 30


@dataclass(frozen=True)
class Attacked:
    """A port, and whether it serves who may use it, over a connection of its own. `get` is a request to it that needs
    no key, `large` one whose reply is, `post` one whose body it reads or refuses."""

    name: str
    address: tuple[str, int]
    serves: Callable[[], bool]
    get: bytes = b""
    large: bytes = b""
    post: bytes = b""

    def connect(self) -> Raw:
        return Raw(socket.create_connection(self.address, timeout=WAIT_S))


@contextmanager
def public_port(folder: Path) -> Iterator[Attacked]:
    api = BodyLimitMiddleware(with_large_reply(FakeApplication()), 4096)
    with listening(folder, api=api, allowed_hosts=[], max_connections=CONNECTIONS, **TIMES) as server:

        def serves() -> bool:
            return httpx.get(f"http://127.0.0.1:{server.address[1]}/quick").status_code == 200

        yield Attacked("public", server.address, serves, b"GET /quick", b"GET /large", b"POST /echo")


def with_large_reply(app: ASGIApp) -> ASGIApp:
    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != "/large":
            await app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for left in reversed(range(256)):
            await send({"type": "http.response.body", "body": bytes(2**16), "more_body": left > 0})

    return served


@contextmanager
def ops_port(folder: Path) -> Iterator[Attacked]:
    document = settings_document(folder, server=TIMES, ops={"port": free_port()})
    settings = Settings.model_validate(document)
    close = open_ops(settings, CollectorRegistry())
    key = (settings.state_dir / "admin-key").read_text().strip()
    url = f"http://127.0.0.1:{settings.ops.port}"

    def serves() -> bool:
        # Answered by the admin API's own router, behind the key.
        known = httpx.get(f"{url}/admin/v1/nothing", headers={"Authorization": f"Bearer {key}"})
        return known.status_code == 404 and httpx.get(f"{url}/metrics").status_code == 200

    try:
        yield Attacked(
            "ops",
            ("127.0.0.1", settings.ops.port),
            serves,
            b"GET /metrics",
            b"GET /docs/swagger-ui-bundle.js",
            b"POST /admin/v1/workspaces",
        )
    finally:
        close()


@contextmanager
def replica_port(folder: Path) -> Iterator[Attacked]:
    """The port in a loop of its own, as in a replica's process."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def opened() -> tuple[ReplicaPort, Address]:
        port = ReplicaPort(FakeEngine(text="hello").generate)
        return port, await port.open("127.0.0.1")

    port, address = asyncio.run_coroutine_threadsafe(opened(), loop).result(WAIT_S)
    try:
        yield Attacked("replica", (address.host, address.port), lambda: asyncio.run(_generates(address)))
    finally:
        asyncio.run_coroutine_threadsafe(port.close(), loop).result(WAIT_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(WAIT_S)
        loop.close()


async def _generates(address: Address) -> bool:
    client = ReplicaClient()
    asked = EngineRequest("id", "alpha", ({"role": "user", "content": "hi"},), 16, True, "salt", {})
    try:
        async with asyncio.timeout(WAIT_S):
            return len([item async for item in client.generate(address, asked)]) > 0
    finally:
        await client.close()
