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
    read_asked,
    read_request,
)

# Under this key Ray's handles know a replica's address.
ADDRESS_KEY = "pith_port"
BACKLOG = 4096
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
        self._server: asyncio.Server | None = None
        self._lines: dict[_Line, asyncio.Task[None]] = {}
        self._is_closing = False

    async def open(self, host: str, ports: Ports = None) -> Address:
        """Listen on a free port of `host`, between the first and the last of `ports`. Raises `OSError`."""
        self._server = await self._listening(host, ports)
        address, port = self._server.sockets[0].getsockname()[:2]
        return Address(address, port, self._token)

    async def _listening(self, host: str, ports: Ports) -> asyncio.Server:
        first, last = ports or (0, 0)
        for port in range(first, last + 1):
            try:
                return await asyncio.start_server(
                    self._connected, host, port, limit=READ_AHEAD_BYTES, backlog=BACKLOG
                )
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
        raise OSError(
            errno.EADDRINUSE, f"no port of {host} is free from {first} to {last} (ray.replica_ports)"
        )

    async def close(self) -> None:
        """Take no more requests, and return when the running ones have ended."""
        self._is_closing = True
        if self._server is not None:
            self._server.close()
        for line in self._lines:
            line.end_when_idle()
        await asyncio.gather(*self._lines.values(), return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line, task = _Line(reader, writer, self._generate), asyncio.current_task()
        assert task is not None
        self._lines[line] = task
        if self._is_closing:
            line.end_when_idle()
        try:
            await line.serve(self._token)
        finally:
            del self._lines[line]


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

    async def serve(self, token: str) -> None:
        """Until the other side closes it, or is a stranger."""
        try:
            # A machine that vanishes closes nothing.
            self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            while True:
                # Read during a reply too: the end of the stream means that the ingress has left.
                raw = await read_asked(self._reader, token)
                if self._is_ending:
                    return
                if self._answering is not None:
                    await self._answering
                self._answering = asyncio.create_task(self._answer(raw))
        except WrongToken:
            self._writer.write(REFUSAL)
        except (asyncio.IncompleteReadError, OSError):
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
