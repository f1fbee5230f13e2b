"""Cost of bytes that no request is made of: the HTTP protocol alone, fed as a socket would feed it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from benchmarks.limits.row import Row, Work
from serve.config.server_settings import ServerSettings
from serve.http.server.bounds import public_bounds
from serve.http.server.server import BoundedHttp

# uvloop's own.
READ_BYTES = 256 * 1024
SENT = 8 * 2**20
HEAD = b"POST /echo HTTP/1.1\r\nHost: h\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
GET = b"GET /health HTTP/1.1\r\nHost: h\r\n\r\n"

# What is sent first, and the piece that is then sent again and again.
SENDING: dict[str, tuple[str, bytes, bytes]] = {
    "endless trailers": ("64 KiB", CHUNKED + b"0\r\n", b"a: b\r\n"),
    "one endless trailer": ("64 KiB", CHUNKED + b"0\r\na: ", b"x"),
    "one endless header": ("64 KiB", HEAD + b"a: ", b"x"),
    "endless headers": ("64 KiB", HEAD, b"a: b\r\n"),
    "endless empty lines": ("64 KiB", b"", b"\r\n"),
    "endless extensions of chunks": ("64 KiB and body / 8", CHUNKED, b"1;aaaaaaaa\r\nx\r\n"),
    "chunks of a byte": ("64 KiB and body / 8", CHUNKED, b"1\r\nx\r\n"),
    "chunks of 48 bytes": ("the body's 8 MiB", CHUNKED, b"30\r\n" + b"x" * 48 + b"\r\n"),
    "pipelined requests": ("64 in line", b"", GET),
}


class FakeTransport(asyncio.Transport):
    """A socket whose client reads all that it is sent."""

    closing = False

    def write(self, data: Any) -> None:
        pass

    def close(self) -> None:
        self.closing = True

    abort = close

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0


async def answer(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body"})


def sent(name: str, size: int) -> Work:
    _, start, piece = SENDING[name]
    data = start + piece * (size // len(piece))
    make = partial(BoundedHttp, public_bounds(ServerSettings(allowed_hosts=["h"])))
    config = uvicorn.Config(answer, log_config=None, lifespan="off", proxy_headers=False, ws="none")
    return lambda: asyncio.run(_feed(make, config, data))


async def _feed(make: Callable[..., Any], config: uvicorn.Config, data: bytes) -> None:
    transport = FakeTransport()
    protocol = make(config=config, server_state=ServerState(), app_state={})
    protocol.connection_made(transport)
    for at in range(0, len(data), READ_BYTES):
        protocol.data_received(data[at : at + READ_BYTES])
        await asyncio.sleep(0)
        if transport.closing:
            break
    protocol.connection_lost(None)


HTTP: tuple[Row, ...] = tuple(
    Row("http", name, bound, SENT, partial(sent, name)) for name, (bound, _, _) in SENDING.items()
)
