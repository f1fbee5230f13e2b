"""The HTTP server of every port: uvicorn within bounds, on a socket that other processes may share."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import uvicorn

from serve.config.settings import Settings
from serve.http.server.bounds import Bounds, public_bounds
from serve.http.server.deadlines import LOOK_EVERY_S
from serve.http.server.protocol import BoundedHttp
from serve.processes.listener import Acceptor, Listener

CLOSE = (b"connection", b"close")


class PithServer(uvicorn.Server):
    """A uvicorn server that accepts connections itself, from a socket that other processes may share.

    It ends those whose clients are late, and leaves the process's signal handlers alone: they are not its own.
    """

    _looked_at = 0.0

    def __init__(self, config: uvicorn.Config, listener: Listener) -> None:
        super().__init__(config)
        self._listener = listener

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        # What uvicorn's own does with sockets, but with our acceptor as the server.
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            raise RuntimeError("the application did not start; the log says why")
        make = partial(self._protocol, self.lifespan.state)
        self.acceptor = Acceptor(self._listener, make, self.server_state.connections)
        self.servers = [cast(asyncio.Server, self.acceptor)]
        self._looked_at = asyncio.get_running_loop().time()
        self.started = True

    def retire(self) -> tuple[int, int]:
        """Take no more connections, and end each with its next reply, which says so: closed without a word, a client
        could be sending its next request. Returns how many may still ask something, and how many have a request that
        runs. To be called as often as one likes."""
        self.acceptor.take_what_waits()
        self.acceptor.close()
        connections = [cast(BoundedHttp, connection) for connection in self.server_state.connections]
        if CLOSE not in self.config.encoded_headers:
            self.config.encoded_headers = [*self.config.encoded_headers, CLOSE]
            self.server_state.default_headers = [*self.server_state.default_headers, CLOSE]
            for connection in connections:
                connection.end_with_this_reply()
        working = sum(connection.works for connection in connections)
        # One that has just been accepted is nobody's yet, and its client may have sent a request already.
        return self.acceptor.adopting + len(connections) - working, working

    def _protocol(self, app_state: dict[str, Any]) -> asyncio.Protocol:
        make = cast("Callable[..., asyncio.Protocol]", self.config.http_protocol_class)
        return make(config=self.config, server_state=self.server_state, app_state=app_state)

    async def on_tick(self, counter: int) -> bool:
        self.acceptor.publish()
        now = asyncio.get_running_loop().time()
        if now >= self._looked_at + LOOK_EVERY_S:
            since_last_s, self._looked_at = now - self._looked_at, now
            for connection in tuple(self.server_state.connections):
                cast(BoundedHttp, connection).look(now, since_last_s=since_last_s)
        return await super().on_tick(counter)


def config_within(app: Any, bounds: Bounds, **given: Any) -> uvicorn.Config:
    """The configuration of a server of `app` within `bounds`; `given` is uvicorn's own."""
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        # It is called as the class would be.
        http=cast(type[asyncio.Protocol], partial(BoundedHttp, bounds)),
        ws="none",
        **given,
    )


def http_config(api: Any, settings: Settings) -> uvicorn.Config:
    """The configuration of the public port's server."""
    return config_within(
        api,
        public_bounds(settings.server),
        lifespan="off",
        # Declared as whole seconds, and handed to asyncio as it is.
        timeout_graceful_shutdown=settings.server.drain_s,
        # Nobody else is believed about where a request came from.
        proxy_headers=bool(settings.server.trusted_proxies),
        forwarded_allow_ips=list(settings.server.trusted_proxies),
    )
