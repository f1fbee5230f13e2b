"""Deadlines of a connection: for what a client sends, and for reading a reply, with the answers to who is late.

A response's `send` waits while the connection's buffer is full, and nothing else would ever end that wait. Here the
connection is cut instead, buffer and all, and to the application it looks like any client that leaves.
"""

import asyncio
import fcntl
import logging
import socket
import struct
import sys
import termios
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal

from serve.config.server_settings import ServerSettings
from serve.http.errors import Problem
from serve.http.middleware import accept_request_id


class BadHttp(Exception):
    """The connection carries something invalid; it ends with this status, if one can still be sent."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


def refusal(problem: BadHttp) -> bytes:
    """The whole response, after which the connection closes."""
    response = Problem(problem.status, "invalid_request_error", "bad_http", problem.detail).response()
    lines = [
        f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}",
        "connection: close",
        f"x-request-id: {accept_request_id(None)}",
    ]
    lines += [f"{name.decode()}: {value.decode()}" for name, value in response.raw_headers]
    return "\r\n".join([*lines, "", ""]).encode() + bytes(response.body)


Part = Literal["none", "head", "body"]
LOOK_EVERY_S = 0.5
# For the first bytes of a connection over a limit, which it is refused behind.
REFUSAL_WAIT_S = 1.0


def overdue(
    server: ServerSettings, part: Part, *, for_s: float, body_bytes: int, refusal: BadHttp | None
) -> BadHttp | None:
    """The refusal for a client that has spent `for_s` seconds on this part of its request; None if it is in time. It is
    asked now and then, which costs less than a timer for each request."""
    if refusal is not None:
        return refusal if for_s > REFUSAL_WAIT_S else None
    if part == "none":
        return (
            BadHttp(408, f"no request for {server.idle_timeout_s:g} s")
            if for_s > server.idle_timeout_s
            else None
        )
    if part == "head":
        late = for_s > server.head_timeout_s
        return (
            BadHttp(408, f"the request's headers took longer than {server.head_timeout_s:g} s")
            if late
            else None
        )
    if for_s > server.body_timeout_s + body_bytes / server.body_bytes_per_s:
        allowed = f"{server.body_timeout_s:g} s and one second for each {server.body_bytes_per_s} bytes"
        return BadHttp(
            408, f"the request's body came too slowly: {body_bytes} bytes, which may take {allowed}"
        )
    return None


logger = logging.getLogger("pith.http")
# Closing throws away what the kernel still holds for the client, instead of offering it for minutes.
AT_ONCE = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class SendTimes:
    """`stalled_s` without a byte taken ends a connection; so do `longest_s` from a request's beginning, if its client
    is late in reading even then."""

    stalled_s: float
    longest_s: float


class SendWatch:
    """Watches one connection while its buffer is full, and costs nothing while it is not."""

    def __init__(
        self, transport: asyncio.Transport, times: SendTimes, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._transport = transport
        self._times = times
        self._loop = loop
        self._began = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._left = 0

    def begin(self) -> None:
        """A request has begun to arrive."""
        self._began = self._loop.time()

    def watch(self) -> None:
        """From now on the buffer must drain: it is full, or has the last that will be sent."""
        if self._timer is None and self._transport.get_write_buffer_size():
            self._look_later()

    def rest(self) -> None:
        """The buffer has room again, or the connection has ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_later(self) -> None:
        self._left = untaken_bytes(self._transport)
        wait_s = min(self._times.stalled_s, self._began + self._times.longest_s - self._loop.time())
        self._timer = self._loop.call_later(max(0.0, wait_s), self._look)

    def _look(self) -> None:
        self._timer = None
        if not self._transport.get_write_buffer_size():
            return
        is_overdue = self._loop.time() >= self._began + self._times.longest_s
        if is_overdue or untaken_bytes(self._transport) >= self._left:
            logger.info("a client that does not read its reply was cut off")
            cut(self._transport)
        else:
            self._look_later()


def untaken_bytes(transport: asyncio.Transport) -> int:
    """Bytes that the client's machine has not acknowledged. The kernel takes from us in large steps, its queue moves in
    small ones: by our buffer alone, a slow reader would look like one that stopped."""
    connection = transport.get_extra_info("socket")
    if connection is None:
        return transport.get_write_buffer_size()
    queued = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4))
    return transport.get_write_buffer_size() + int.from_bytes(queued, sys.byteorder)


def cut(transport: asyncio.Transport) -> None:
    """End the connection at once; neither we nor the kernel keep what it was still to send."""
    connection = transport.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
    transport.abort()
