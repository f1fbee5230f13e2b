"""The HTTP server of an ingress replica: uvicorn, with bounded headers and our own words for broken HTTP."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from serve.errors import Problem
from serve.http.sending import SendTimes, SendWatch
from serve.request_id import accept_request_id
from serve.settings import ServerSettings, Settings

BACKLOG = 4096
MAX_HEADER_BYTES = 64 * 1024
TAKEN_AT_ONCE = 64


class PithServer(uvicorn.Server):
    """A uvicorn server that leaves the process's signal handlers alone: the process belongs to Ray."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class BoundedHttp(HttpToolsProtocol):
    """HTTP/1.1 whose headers end and whose replies are read, or the connection ends; what it refuses has the contract's
    error body."""

    _header_bytes = 0
    _in_headers = False
    _running: RequestResponseCycle | None = None

    def __init__(self, send_times: SendTimes, **given: Any) -> None:
        super().__init__(**given)
        self._send_times = send_times

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._sending = SendWatch(transport, self._send_times, self.loop)

    def connection_lost(self, exc: Exception | None) -> None:
        self._sending.rest()
        super().connection_lost(exc)
        # uvicorn tells the newest request alone, which may be waiting behind the one that runs.
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._sending.watch()

    def resume_writing(self) -> None:
        self._sending.rest()
        super().resume_writing()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._sending.watch()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._sending.watch()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        self._sending.begin()
        super()._start_asgi_task(cycle, app)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_headers, self._header_bytes = True, 0

    def on_headers_complete(self) -> None:
        self._in_headers = False
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_headers:
            self._header_bytes += len(data)
            if self._header_bytes > MAX_HEADER_BYTES:
                self._refuse(431, f"the request's headers are larger than {MAX_HEADER_BYTES} bytes")

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "the request is not valid HTTP/1.1")

    def _refuse(self, status: int, detail: str) -> None:
        if self.transport.is_closing():
            return
        response = Problem(status, "invalid_request_error", "bad_http", detail).response()
        reason = {400: "Bad Request", 431: "Request Header Fields Too Large"}[status]
        lines = [
            f"HTTP/1.1 {status} {reason}",
            "connection: close",
            f"x-request-id: {accept_request_id(None)}",
        ]
        lines += [f"{name.decode()}: {value.decode()}" for name, value in response.raw_headers]
        self.transport.write("\r\n".join([*lines, "", ""]).encode() + bytes(response.body))
        self.transport.close()
        self._sending.watch()


class Acceptor:
    """Makes the protocol of a connection that uvicorn was given, and takes in those that wait behind it.

    libuv, and so uvloop, takes one in a turn of the event loop. Of a thousand that come at once the last would be seen
    after a thousand turns, in which those before it are worked on, and a health probe waits with it.
    """

    def __init__(self, listener: socket.socket, send_times: SendTimes) -> None:
        self._listener = listener
        self._send_times = send_times
        self._adopting: set[asyncio.Task[Any]] = set()

    def __call__(self, **given: Any) -> BoundedHttp:
        make = partial(BoundedHttp, self._send_times, **given)
        for _ in range(TAKEN_AT_ONCE):
            try:
                connection, _address = self._listener.accept()
            except OSError:
                # Mostly that none waits. What else it is, such as too many open files, libuv meets and deals with.
                break
            self._adopt(connection, make)
        return make()

    def _adopt(self, connection: socket.socket, make: partial[BoundedHttp]) -> None:
        connection.setblocking(False)
        loop = asyncio.get_running_loop()
        adopting = loop.create_task(loop.connect_accepted_socket(make, connection))
        self._adopting.add(adopting)
        adopting.add_done_callback(self._adopting.discard)


def http_config(api: Any, settings: Settings, listener: socket.socket) -> uvicorn.Config:
    """Of a server that is to be given `listener`."""
    return uvicorn.Config(
        api,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        # Declared as whole seconds, and handed to asyncio as it is.
        timeout_graceful_shutdown=settings.server.drain_s,  # type: ignore[arg-type]
        # It is called as the class would be.
        http=cast(type[asyncio.Protocol], Acceptor(listener, _send_times(settings.server))),
        ws="none",
        backlog=BACKLOG,
    )


def _send_times(server: ServerSettings) -> SendTimes:
    # The engine's own bounds end a request by then, unless it waits for its client.
    longest_s = server.start_wait_s + server.longest_request_s + server.stall_s
    return SendTimes(stalled_s=server.send_timeout_s, longest_s=longest_s)


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket that other ingress replicas may share: the kernel spreads connections over them."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind((host, port))
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener


def allow_open_files() -> None:
    """Raise the soft limit of this process to the hard one: many shells and service managers start a process at 1,024,
    and each connection is an open file. Over the limit, libuv takes connections in only to close them."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
