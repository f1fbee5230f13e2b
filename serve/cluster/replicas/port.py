"""The private port of an engine's replica, for the ingress alone: each request begins with the replica's token."""

import asyncio
import errno
import logging
import secrets
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass

from models.engine import EngineChunk, EngineFault, EngineRequest
from serve.cluster.replicas.wire import (
    READ_AHEAD_BYTES,
    REFUSAL,
    TOKEN_BYTES,
    WrongToken,
    frame,
    is_last,
    read_request,
    read_size,
)
from serve.processes.connections import Connections, Place
from serve.processes.listener import BACKLOG, Acceptor, Listener, bound_socket
from serve.processes.process_setup import allow_open_files, files_to_spare

# Under this key Ray's handles know a replica's address.
ADDRESS_KEY = "pith_port"
# From the accept to the token; an ingress sends it with its request, at once.
TOKEN_S = 5.0
# Connections without the token. With one more, the oldest goes; so there must be more than the few hundred that are
# taken in before the token of one that has it is read.
STRANGERS = 1024
# The first and the last that may be taken; None: any.
Ports = tuple[int, int] | None
Generate = Callable[[EngineRequest], AsyncGenerator[EngineChunk | EngineFault, None]]
logger = logging.getLogger("pith.replica_port")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a replica listens, and its token."""

    host: str
    port: int
    token: str


class ReplicaPort:
    """Serves `generate`, one request after another on a connection. Closing a connection ends its generation."""

    def __init__(self, generate: Generate) -> None:
        self._generate = generate
        self._token = secrets.token_hex(TOKEN_BYTES // 2)
        self._acceptor: Acceptor | None = None
        self._lines: dict[_Line, asyncio.Task[None]] = {}
        self._is_closing = False

    async def open(self, host: str, ports: Ports = None) -> Address:
        """Listen on a free port of `host`, between the first and the last of `ports`. Raises `OSError`."""
        allow_open_files()
        most = min(STRANGERS, files_to_spare())
        self._strangers = Connections(most=most, most_per_client=most)
        sock = _listening(host, ports)
        self._acceptor = Acceptor(Listener(sock), self._protocol, self._lines)
        address, port = sock.getsockname()[:2]
        return Address(address, port, self._token)

    async def close(self) -> None:
        """Take no more requests, and return when the running ones have ended."""
        self._is_closing = True
        if self._acceptor is not None:
            self._acceptor.close()
            await self._acceptor.wait_closed()
        for line in self._lines:
            line.end_when_idle()
        await asyncio.gather(*self._lines.values(), return_exceptions=True)

    def _protocol(self) -> asyncio.Protocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(READ_AHEAD_BYTES), self._connected)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = _Line(reader, writer, self._generate)
        place = self._strangers.open(None, lambda _: writer.transport.abort())
        self._lines[line] = asyncio.create_task(self._serve(line, place))
        if self._is_closing:
            line.end_when_idle()

    async def _serve(self, line: "_Line", place: Place) -> None:
        try:
            # Whoever has the token is no stranger, and is not counted any more.
            await line.serve(self._token, lambda: self._strangers.close(place))
        finally:
            self._strangers.close(place)
            del self._lines[line]


def _listening(host: str, ports: Ports) -> socket.socket:
    first, last = ports or (0, 0)
    for port in range(first, last + 1):
        try:
            sock = bound_socket(host, port, shared=False)
            try:
                sock.listen(BACKLOG)
            except OSError:
                sock.close()
                raise
            return sock
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    raise OSError(errno.EADDRINUSE, f"no port of {host} is free from {first} to {last} (ray.replica_ports)")


class _Line:
    """One connection."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, generate: Generate
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._generate = generate
        self._answering: asyncio.Task[None] | None = None
        self._is_ending = False

    async def serve(self, token: str, known: Callable[[], None]) -> None:
        """Until the other side closes it, or is a stranger: `known` is called when it has sent the token."""
        try:
            # A machine that vanishes closes nothing.
            self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            async with asyncio.timeout(TOKEN_S):
                size = await read_size(self._reader, token)
            known()
            while True:
                raw = await self._reader.readexactly(size)
                if self._is_ending:
                    return
                if self._answering is not None:
                    await self._answering
                self._answering = asyncio.create_task(self._answer(raw))
                # During a reply too: the end of the stream means that the ingress has left.
                size = await read_size(self._reader, token)
        except WrongToken:
            self._writer.write(REFUSAL)
        except (asyncio.IncompleteReadError, OSError):
            # It left, was shed, or the time for its token is over.
            pass
        finally:
            await self._close()

    def end_when_idle(self) -> None:
        self._is_ending = True
        if self._answering is None or self._answering.done():
            self._writer.close()

    async def _answer(self, raw: bytes) -> None:
        """Any failure closes the connection, so that the ingress does not take the reply for complete."""
        is_whole = False
        try:
            async with aclosing(self._generate(read_request(raw))) as items:
                async for item in items:
                    self._writer.write(frame(item))
                    is_whole = is_last(item)
                    if is_whole:
                        return
                    await self._writer.drain()
            logger.error("a generation ended without its last item")
        except OSError:
            # The ingress has closed the connection.
            pass
        except Exception:
            logger.exception("a request of the ingress failed")
        finally:
            if self._is_ending or not is_whole:
                self._writer.close()

    async def _close(self) -> None:
        if self._answering is not None:
            self._answering.cancel()
            await asyncio.gather(self._answering, return_exceptions=True)
        self._writer.close()
