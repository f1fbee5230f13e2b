"""The HTTP server of an ingress replica: uvicorn, on a socket that is taken from in handfuls."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import uvicorn

from serve.http.protocol import BoundedHttp
from serve.http.sending import SendTimes
from serve.settings import ServerSettings, Settings

BACKLOG = 4096
TAKEN_AT_ONCE = 64


class PithServer(uvicorn.Server):
    """A uvicorn server that leaves the process's signal handlers alone: the process belongs to Ray."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


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
