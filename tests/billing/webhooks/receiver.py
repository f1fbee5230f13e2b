"""A real HTTP receiver of webhooks on loopback, and an independent check of their signatures."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Got:
    """One request as it came."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def payload(self) -> Any:
        return json.loads(self.body)

    def is_signed_with(self, secret: str) -> bool:
        """As https://www.standardwebhooks.com says, in words of its own."""
        key = base64.b64decode(secret[len("whsec_") :])
        signed = b".".join([self.id.encode(), self.headers["webhook-timestamp"].encode(), self.body])
        wanted = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
        return f"v1,{wanted}" in self.headers["webhook-signature"].split(" ")


Answer = Callable[[Got, BaseHTTPRequestHandler], None]


@dataclass
class Receiver:
    """What was received, in order. `answer` may be changed between requests."""

    url: str = ""
    got: list[Got] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    before: Callable[[Got], None] = lambda got: None

    def of(self, path: str) -> list[Got]:
        return [one for one in self.got if one.path == path]

    def next_status(self) -> int:
        """The next of `statuses`, and 200 once there are none left."""
        return self.statuses.pop(0) if self.statuses else 200


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Listens until the block ends."""
    receiver, done = Receiver(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            got = Got(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            receiver.got.append(got)
            receiver.before(got)
            if self.path == "/hangs":
                done.wait(30)
                self.close_connection = True
                return
            status = receiver.next_status()
            self.send_response(status)
            if self.path == "/slow-body":
                self.send_header("Content-Length", "1000000")
                self.end_headers()
                self.wfile.flush()
                done.wait(30)
                self.close_connection = True
                return
            if 300 <= status < 400:
                self.send_header("Location", f"{receiver.url}/redirected")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    class Server(ThreadingHTTPServer):
        daemon_threads = False

        def handle_error(self, *_: object) -> None:
            """A client that leaves early is part of these tests."""

    server = Server(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield receiver
    finally:
        done.set()
        server.shutdown()
        server.server_close()
        thread.join()
