"""The HTTP server: its connections within bounds, and its run on a listener."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from serve.config.settings import Settings
from serve.http.auth import client_of, is_in_networks, plain_address
from serve.http.server.bounds import (
    LOOK_EVERY_S,
    BadHttp,
    Bounds,
    Part,
    SendWatch,
    cut,
    overdue,
    public_bounds,
    refusal,
)
from serve.processes.connections import Connections, Place, Rest
from serve.processes.listener import Acceptor, Listener

# Of the request line and the headers; and of all that frames a body: chunk sizes, chunk extensions, trailers.
MAX_HEADER_BYTES = 64 * 1024
# More framing is taken for more body, so that chunks may be as small as some 40 bytes however long the body is.
BODY_BYTES_FOR_A_BYTE_OF_FRAMING = 8
MAX_PIPELINED = 64
# A client that is still sending when its answer comes would see a reset connection instead.
MAX_DISCARDED_BYTES = 64 * 2**20
_SAY_A_BODY = frozenset({b"content-length", b"transfer-encoding"})


class BoundedHttp(HttpToolsProtocol):
    """HTTP/1.1 whose headers and framing end, and whose replies are read, or the connection ends.

    What it refuses has the contract's error body, unless a reply is under way that the answer could be taken for.
    """

    _part: Part = "none"
    # Bytes since the last request ended, without those of the next one's body.
    _around_body = 0
    _body_bytes = 0
    _problem: BadHttp | None = None
    _takes_no_more = False
    _running: RequestResponseCycle | None = None

    def __init__(self, bounds: Bounds, **given: Any) -> None:
        super().__init__(**given)
        self._bounds = bounds
        self._connections = bounds.connections
        self._served = self.app

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._sending = SendWatch(transport, self._bounds.send, self.loop)
        # When what the client is at began: to be idle, to send a request's headers, to send its body.
        self._since = self.loop.time()
        if self.client is not None:
            self.client = (plain_address(self.client[0]), self.client[1])
        address = self.client[0] if self.client else None
        client = None if is_in_networks(address, self._bounds.not_counted) else client_of(address)
        self._place = self._connections.open(client, self._be_shed)
        self._refusal = self._refusal_of(self._place)
        if self._refusal is not None and not self._connections.may_be_told:
            cut(transport)

    def _refusal_of(self, place: Place) -> BadHttp | None:
        if place.refused is None:
            return None
        if place.refused == Connections.ALL:
            return BadHttp(
                503, f"this server has {self._connections.most} connections open, which is its limit"
            )
        most = self._connections.most_per_client
        return BadHttp(429, f"your address has {most} connections open, which is the limit for one")

    def _be_shed(self, rest: Rest) -> None:
        """Make room for another client, which may have something to ask."""
        if rest is Rest.NEW:
            self._refuse(
                BadHttp(
                    503, "this server needed the connection, on which nothing was asked, for another client"
                )
            )
        elif rest is Rest.IDLE:
            # Said now, it could pass for the reply to a request that is on its way.
            self._close()
        else:
            cut(self.transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.close(self._place)
        self._sending.rest()
        super().connection_lost(exc)
        # uvicorn tells the newest request alone, which may be waiting behind the one that runs.
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._sending.watch()
        self._connections.rests(self._place, Rest.UNREAD)

    def resume_writing(self) -> None:
        self._sending.rest()
        super().resume_writing()
        self._note_rest()

    def _note_rest(self) -> None:
        if self._running is None or self._running.response_complete:
            self._connections.rests(self._place, Rest.IDLE)
        else:
            self._connections.works(self._place)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._note_rest()
        # `look` ends what is idle, even after half a request.
        self._unset_keepalive_if_required()
        if self._part == "none":
            self._since = self.loop.time()
        if self.transport.is_closing():
            self._sending.watch()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        self._connections.works(self._place)
        self._sending.begin()
        super()._start_asgi_task(cycle, app)

    def look(self, now: float, *, since_last_s: float) -> None:
        """End the connection where its client is late. To be called now and then, with the loop's time."""
        if self.transport.is_closing() or self.works:
            return
        if self.flow.read_paused:
            # The client waits for us.
            self._since += since_last_s
            return
        late = overdue(
            self._bounds.receive,
            self._part,
            for_s=now - self._since,
            body_bytes=self._body_bytes,
            refusal=self._refusal,
        )
        if late is not None and self._part == "none" and self._refusal is None:
            # Said now, it could pass for the reply to a request that is on its way.
            self._close()
        elif late is not None:
            self._refuse(late)

    @property
    def works(self) -> bool:
        """True while a request is whole and its reply is not."""
        return self._part == "none" and self._running is not None and not self._running.response_complete

    def end_with_this_reply(self) -> None:
        """Have the reply say that the connection ends, unless it has begun: then the next one does."""
        if self._running is not None and not self._running.response_started:
            self._running.keep_alive = False

    def data_received(self, data: bytes) -> None:
        if self._refusal is not None:
            self._refuse(self._refusal)
            return
        self._around_body += len(data)
        try:
            if not self._takes_no_more:
                self.parser.feed_data(data)
            self._check_size()
        except httptools.HttpParserUpgrade:
            self._end_after_this_reply()
        except (httptools.HttpParserError, BadHttp):
            self._refuse(self._problem or BadHttp(400, "the request is not valid HTTP/1.1"))

    def _end_after_this_reply(self) -> None:
        """For a client that asked to upgrade: none is offered, and what it sends next may be no HTTP."""
        self._takes_no_more = True
        self.cycle.keep_alive = False
        if self.cycle.response_complete:
            self._close()

    def _check_size(self) -> None:
        if self._part == "head" and self._around_body > MAX_HEADER_BYTES:
            self._fail(431, f"the request's headers are larger than {MAX_HEADER_BYTES} bytes")
        if self._around_body > MAX_HEADER_BYTES + self._body_bytes // BODY_BYTES_FOR_A_BYTE_OF_FRAMING:
            self._fail(
                400, "the framing around the request's body (chunk sizes, trailers) is too large for it"
            )

    def _fail(self, status: int, detail: str) -> None:
        # The parser hides what its callbacks raise behind an error of its own.
        self._problem = BadHttp(status, detail)
        raise self._problem

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._part, self._body_bytes, self._since = "head", 0, self.loop.time()

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers come when the application has the headers already, and could pass for some.
        if self._part == "head":
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade() and any(name in _SAY_A_BODY for name, _ in self.headers):
            # The parser does not read a body behind these headers.
            self._fail(
                400, "connections are not upgraded; leave the Upgrade header out of a request with a body"
            )
        self.app = self._served if self._is_ours(self._check_names()) else self._bounds.misdirected
        self._part, self._since = "body", self.loop.time()
        super().on_headers_complete()
        if len(self.pipeline) > MAX_PIPELINED:
            self._fail(400, f"more than {MAX_PIPELINED} requests wait for the one before them")

    def _check_names(self) -> list[bytes]:
        """Returns the `Host`, if there is one. Of two of these, a proxy in front of us may have read the other."""
        hosts, keys = list[bytes](), 0
        for name, value in self.headers:
            if name == b"host":
                hosts.append(value)
            elif name == b"authorization":
                keys += 1
        if len(hosts) > 1 or not (hosts or self.parser.get_http_version() == "1.0"):
            self._fail(400, f"the request has {len(hosts)} Host headers, and needs one")
        if keys > 1:
            self._fail(400, "the request has more than one Authorization header")
        return hosts

    def _is_ours(self, hosts: list[bytes]) -> bool:
        """Whether the request names this server, wherever it names one. Every browser does."""
        names = self._bounds.hosts
        is_named = not hosts or names.has(hosts[0])
        return is_named and (self.url[:1] == b"/" or names.has_target(self.url))

    def on_body(self, body: bytes) -> None:
        self._around_body = max(0, self._around_body - len(body))
        self._body_bytes += len(body)
        if self._body_bytes > MAX_DISCARDED_BYTES and self.cycle.response_complete:
            self._fail(400, "the request was answered, but its body goes on")
        super().on_body(body)

    def on_message_complete(self) -> None:
        # If the next request is in the same read, that part of it is not counted: a read is small.
        self._part, self._around_body, self._since = "none", 0, self.loop.time()
        super().on_message_complete()

    def _refuse(self, problem: BadHttp) -> None:
        """Say what was wrong where the answer cannot be taken for another request's, and close."""
        if self.transport.is_closing():
            return
        if self._may_answer():
            self.transport.write(refusal(problem))
        self._close()

    def _close(self) -> None:
        self.transport.close()
        self._sending.watch()

    def _may_answer(self) -> bool:
        if self._running is None:
            return True
        if self._part == "body" and self.cycle is self._running:
            return not self.cycle.response_started
        return self._running.response_complete

    def send_400_response(self, msg: str) -> Any:
        self._refuse(BadHttp(400, "the request is not valid HTTP/1.1"))


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
