"""Bounds on connections: their number and hosts, and the time that each part of a request and of its reply may take."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import re
import socket
import struct
import sys
import termios
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import ip_address
from typing import Literal

from starlette.types import ASGIApp, Receive, Scope, Send

from serve.config.server_settings import ServerSettings
from serve.config.settings import Settings
from serve.config.values import ANY, LOCALHOST, LOOPBACK, Network, parse_networks
from serve.http.auth import is_in_networks
from serve.http.error_dialects import response_of
from serve.http.errors import Problem
from serve.http.middleware import RequestIdMiddleware, accept_request_id
from serve.processes.connections import Connections
from serve.processes.process_setup import files_to_spare

# A name or an address, and a port that may be empty.
_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]{2,45}\]|[0-9A-Za-z._-]{1,253})(?::[0-9]{0,5})?")
# Of a target as proxies are asked; what stands before an `@` is part of it, and of no name here.
_AUTHORITY = re.compile(rb"[A-Za-z][0-9A-Za-z+.-]{0,63}://([^/?#]{0,300})")
_LOOPBACK = parse_networks(LOOPBACK)
# What clients send is the same few bytes again and again.
MOST_REMEMBERED = 64


def is_loopback(host: str) -> bool:
    """True if only this machine reaches what listens on this address."""
    return host == LOCALHOST or is_in_networks(host, _LOOPBACK)


class Hosts:
    """The names of one port. On loopback it is this machine's own, and those that are configured. Elsewhere any will do
    unless some are configured, and so will any address: a page that was reached by an address is nobody else's."""

    def __init__(self, bound_to: str, configured: Iterable[str]) -> None:
        names = set(configured)
        self._is_loopback = is_loopback(bound_to)
        self._is_any = ANY in names or not (names or self._is_loopback)
        self._names = names | {LOCALHOST, bound_to.lower()}
        self._known: set[bytes] = set()

    def has(self, given: bytes) -> bool:
        """True if a `Host` header names this server."""
        if self._is_any or given in self._known:
            return True
        if not self._is_ours(given):
            return False
        if len(self._known) < MOST_REMEMBERED:
            self._known.add(given)
        return True

    def has_target(self, target: bytes) -> bool:
        """True if a request's target in absolute form names this server; one without a host does not name another."""
        found = _AUTHORITY.match(target)
        return found is None or self.has(found[1])

    def _is_ours(self, given: bytes) -> bool:
        found = _HOST.fullmatch(given)
        if found is None:
            return False
        name = found[1].decode("ascii").strip("[]").lower().removesuffix(".")
        return name in self._names or (
            is_in_networks(name, _LOOPBACK) if self._is_loopback else _is_address(name)
        )


class Misdirected:
    """Answers a request for another host, whatever it asks."""

    def __init__(self, setting: str) -> None:
        words = (
            "this server is not known by the name in the request's Host header; its operator lists names in "
        )
        self._problem = Problem(421, "invalid_request_error", "misdirected_request", words + setting)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = response_of(self._problem, scope["path"], scope["state"]["request_id"])
        await answer(scope, receive, send)


def misdirected(setting: str) -> ASGIApp:
    """The application that answers them; `setting` is the configuration's key with the names."""
    return RequestIdMiddleware(Misdirected(setting))


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


# Scrapes, administrators and probes are few.
OPS_CONNECTIONS = 256
OPS_CONNECTIONS_PER_ADDRESS = 64


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds on all connections of one port. Those from networks in `not_counted` are bound by the overall limit only.
    `receive` has the times for what a client sends; `misdirected` answers requests for other hosts."""

    connections: Connections
    not_counted: tuple[Network, ...]
    receive: ServerSettings
    send: SendTimes
    hosts: Hosts
    misdirected: ASGIApp


def public_bounds(server: ServerSettings) -> Bounds:
    """Those of the public port, for one HTTP process."""
    return Bounds(
        Connections(
            most=min(server.max_connections, files_to_spare()),
            most_per_client=server.max_connections_per_address,
        ),
        # Proxies bring many clients, and this machine's own are no strangers.
        parse_networks([*LOOPBACK, *server.trusted_proxies]),
        server,
        _send_times(server),
        Hosts(server.host, server.allowed_hosts),
        misdirected("server.allowed_hosts"),
    )


def ops_bounds(settings: Settings) -> Bounds:
    """Those of the ops port: fewer connections, the same times."""
    return Bounds(
        Connections(most=OPS_CONNECTIONS, most_per_client=OPS_CONNECTIONS_PER_ADDRESS),
        parse_networks(LOOPBACK),
        settings.server,
        _send_times(settings.server),
        Hosts(settings.ops.host, settings.ops.allowed_hosts),
        misdirected("ops.allowed_hosts"),
    )


def _send_times(server: ServerSettings) -> SendTimes:
    # The engine's own bounds end a request by then, unless it waits for its client.
    longest_s = server.start_wait_s + server.longest_request_s + server.stall_s
    return SendTimes(stalled_s=server.send_timeout_s, longest_s=longest_s)


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
