"""The HTTP server of an ingress replica: uvicorn, on a socket that other processes may share."""

import asyncio
import resource
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import uvicorn

from serve.config.settings import ServerSettings, Settings
from serve.config.values.networks import LOOPBACK, networks
from serve.http.server.connections import Connections, ReceiveTimes
from serve.http.server.protocol import BoundedHttp
from serve.http.server.receive_deadlines import LOOK_EVERY_S
from serve.http.server.send_deadlines import SendTimes
from serve.processes.acceptor import Acceptor
from serve.processes.listener import Listener

# Open files that are no connections of clients: the ledger's, the spool's, those to replicas, libraries.
OTHER_FILES = 512
CLOSE = (b"connection", b"close")


class PithServer(uvicorn.Server):
    """A uvicorn server that accepts connections itself, from a socket that other processes may share.

    It ends those whose clients are late, and leaves the process's signal handlers alone: the process belongs to Ray.
    """

    _looked_at = 0.0

    def __init__(self, config: uvicorn.Config, listener: Listener) -> None:
        super().__init__(config)
        self._listener = listener

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        # What uvicorn's own does with sockets, but with our acceptor as the server. There is no lifespan.
        make = partial(self._protocol, {})
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
        http=cast(type[asyncio.Protocol], http_protocol(settings.server)),
        ws="none",
        # Nobody else is believed about where a request came from.
        proxy_headers=bool(settings.server.trusted_proxies),
        forwarded_allow_ips=list(settings.server.trusted_proxies),
    )


def http_protocol(server: ServerSettings) -> Callable[..., BoundedHttp]:
    """Makes the protocol of a connection. All that one of these makes are counted together."""
    connections = Connections(
        most=min(server.max_connections, _files_to_spare()),
        most_per_address=server.max_connections_per_address,
        # Proxies bring many clients, and this machine's own are no strangers.
        not_counted=networks([*LOOPBACK, *server.trusted_proxies]),
        times=ReceiveTimes(
            idle_s=server.idle_timeout_s,
            head_s=server.head_timeout_s,
            body_s=server.body_timeout_s,
            body_bytes_per_s=server.body_bytes_per_s,
        ),
    )
    # The engine's own bounds end a request by then, unless it waits for its client.
    longest_s = server.start_wait_s + server.longest_request_s + server.stall_s
    return partial(BoundedHttp, connections, SendTimes(stalled_s=server.send_timeout_s, longest_s=longest_s))


def _files_to_spare() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else max(1, soft - OTHER_FILES)


def allow_open_files() -> None:
    """Raise the soft limit of this process to the hard one: many shells and service managers start a process at 1,024,
    and each connection is an open file. Over the limit none is taken in."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
