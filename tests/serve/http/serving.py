"""The real HTTP server on loopback, in a thread, before a small application; and raw sockets that speak to it."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop
from starlette.types import ASGIApp, Receive, Scope, Send

from serve.app import PithServer
from serve.config.settings import Settings
from serve.http.server.server import http_config
from serve.processes.listener import own_listener
from tests.serve.served import settings_document

WAIT_S = 60.0


@dataclass
class FakeApplication:
    """Says what it was given. `/held` answers when `release` is set, `/early` before it has read the body."""

    release: asyncio.Event = field(default_factory=asyncio.Event)
    seen: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.seen.append(scope["path"])
        body = b"" if scope["path"] == "/early" else await self._body(receive)
        if scope["path"] == "/held":
            waiting = asyncio.create_task(self._gone(receive, scope["path"]))
            released = asyncio.create_task(self.release.wait())
            await asyncio.wait((waiting, released), return_when="FIRST_COMPLETED")
            waiting.cancel(), released.cancel()
        headers = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in scope["headers"]]
        client = (scope["client"] or [None])[0]
        reply = json.dumps({"body": len(body), "headers": headers, "client": client}).encode()
        length = str(len(reply)).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        await send({"type": "http.response.body", "body": reply, "more_body": False})

    async def _body(self, receive: Receive) -> bytes:
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message["type"] == "http.request" and message["more_body"]
        return body

    async def _gone(self, receive: Receive, path: str) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.left.append(path)


@dataclass
class Listening:
    """A server that listens, and what runs in its loop."""

    address: tuple[str, int]
    loop: asyncio.AbstractEventLoop
    server: PithServer
    application: FakeApplication

    def release(self) -> None:
        self.loop.call_soon_threadsafe(self.application.release.set)

    def connect(self) -> Raw:
        return Raw(socket.create_connection(self.address, timeout=WAIT_S))

    def answers(self) -> bool:
        """Whether a client that comes now is answered."""
        with self.connect() as client:
            client.send(b"GET /health HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            return client.reply().startswith(b"HTTP/1.1 200")


class Raw:
    """A client that sends what it is told, byte for byte."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_until_closed(self, piece: bytes, *, at_most: int) -> int:
        """Send a piece again and again; the bytes sent until the server had enough, or all."""
        sent = 0
        try:
            while sent < at_most:
                self.socket.sendall(piece)
                sent += len(piece)
        except OSError:
            pass
        return sent

    def answer(self) -> bytes:
        """One whole response, which says how long it is; the connection may go on."""
        received = b""
        while b"\r\n\r\n" not in received:
            received += self._some()
        head, _, body = received.partition(b"\r\n\r\n")
        (length,) = re.findall(rb"(?i)\r\ncontent-length: (\d+)", head)
        while len(body) < int(length):
            more = self._some()
            received, body = received + more, body + more
        return received

    def _some(self) -> bytes:
        some = self.socket.recv(65_536)
        assert some, "the connection ended before its response"
        return some

    def reply(self) -> bytes:
        """All that comes until the server closes."""
        received = b""
        try:
            while piece := self.socket.recv(65_536):
                received += piece
        except ConnectionResetError:
            pass
        return received


def detail(reply: bytes) -> tuple[int, Any]:
    """The status and the error body's detail of the first response in a reply."""
    head, _, body = reply.partition(b"\r\n\r\n")
    assert b"\r\nx-request-id: " in head.lower(), reply
    return int(head.split()[1]), json.loads(body)["detail"]


def eventually(holds: Callable[[], bool]) -> None:
    """Poll until something holds; fails when it does not in time."""
    tick, end = threading.Event(), time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end, "it never came to hold"
        tick.wait(0.01)


@contextmanager
def listening(state_dir: Path, *, api: ASGIApp | None = None, **server_settings: Any) -> Iterator[Listening]:
    """Listen until the block ends, for `api` or the fake application; the keywords are keys of the configuration's
    `server`."""
    document = settings_document(state_dir)
    document["server"] = {**document.get("server", {}), "allowed_hosts": ["h"], **server_settings}
    settings = Settings.model_validate(document)
    ready, stop = threading.Event(), threading.Event()
    found: list[Listening] = []

    async def serve() -> None:
        listener = own_listener("127.0.0.1", 0)
        application = FakeApplication()
        server = PithServer(http_config(api or application, settings), listener)
        serving = asyncio.create_task(server.serve())
        address = listener.sock.getsockname()[:2]
        found.append(Listening(address, asyncio.get_running_loop(), server, application))
        ready.set()
        await asyncio.to_thread(stop.wait)
        application.release.set()
        server.should_exit = True
        await serving

    thread = threading.Thread(target=lambda: uvloop.run(serve()))
    thread.start()
    try:
        assert ready.wait(WAIT_S), "the server did not start"
        yield found[0]
    finally:
        stop.set()
        thread.join(WAIT_S)
        assert not thread.is_alive(), "the server did not stop"
