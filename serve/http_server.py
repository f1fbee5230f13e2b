"""The HTTP server of an ingress replica: uvicorn, on a socket that other processes may share."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import uvicorn

from serve.cluster.acceptor import Acceptor
from serve.cluster.door import Door
from serve.http.protocol import BoundedHttp
from serve.http.sending import SendTimes
from serve.settings import ServerSettings, Settings


class PithServer(uvicorn.Server):
    """A uvicorn server that takes connections in by itself, from a socket that other processes may share.

    It leaves the process's signal handlers alone: the process belongs to Ray.
    """

    def __init__(self, config: uvicorn.Config, door: Door) -> None:
        super().__init__(config)
        self._door = door

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        # What uvicorn's own does with sockets, whose servers ours replaces. There is no lifespan.
        make = partial(self._protocol, {})
        self.acceptor = Acceptor(self._door, make, self.server_state.connections)
        self.servers = [cast(asyncio.Server, self.acceptor)]
        self.started = True

    def _protocol(self, app_state: dict[str, Any]) -> asyncio.Protocol:
        make = cast("Callable[..., asyncio.Protocol]", self.config.http_protocol_class)
        return make(config=self.config, server_state=self.server_state, app_state=app_state)

    async def on_tick(self, counter: int) -> bool:
        self.acceptor.publish()
        return await super().on_tick(counter)


def http_config(api: Any, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        api,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        # Declared as whole seconds, and handed to asyncio as it is.
        timeout_graceful_shutdown=settings.server.drain_s,  # type: ignore[arg-type]
        # It is called as the class would be.
        http=cast(type[asyncio.Protocol], partial(BoundedHttp, _send_times(settings.server))),
        ws="none",
    )


def _send_times(server: ServerSettings) -> SendTimes:
    # The engine's own bounds end a request by then, unless it waits for its client.
    longest_s = server.start_wait_s + server.longest_request_s + server.stall_s
    return SendTimes(stalled_s=server.send_timeout_s, longest_s=longest_s)


def allow_open_files() -> None:
    """Raise the soft limit of this process to the hard one: many shells and service managers start a process at 1,024,
    and each connection is an open file. Over the limit none is taken in."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
