"""The ingress's side of the way to a replica: one request to its port, the reply item by item."""

import asyncio
import socket
from collections import defaultdict, deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from errno import EADDRNOTAVAIL, EMFILE, ENFILE, ENOBUFS, ENOMEM

from models.engine import EngineChunk, EngineFault, EngineRequest
from serve.cluster.replicas.port import (
    READ_AHEAD_BYTES,
    Address,
    WrongToken,
    asked_bytes,
    is_last,
    read_frame,
)

CONNECT_S = 5.0
KEEP_ALIVE_S = 60.0
# A machine that vanishes closes nothing: the kernel asks after it, and after this time gives the connection up.
VANISHED_S = 5
# Without these on this side, no connection is made even to a healthy replica.
OUT_OF_RESOURCES = (EMFILE, ENFILE, ENOBUFS, ENOMEM, EADDRNOTAVAIL)


class ReplicaGone(Exception):
    """Nothing listens where the replica was; it has not seen the request."""


class ReplyBroken(Exception):
    """The reply ended before its last item, or the request could not be sent for a reason on this side."""


@dataclass(slots=True)
class _Line:
    """One connection, which is idle from `kept_at` on."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    kept_at: float = 0.0

    def is_usable(self, now: float) -> bool:
        return not (self.reader.at_eof() or self.writer.is_closing() or now > self.kept_at + KEEP_ALIVE_S)


class ReplicaClient:
    """Kept connections to all replicas. To be made and used in one event loop."""

    def __init__(self) -> None:
        # The most recently used are at the end.
        self._idle: defaultdict[Address, deque[_Line]] = defaultdict(deque)

    async def generate(
        self, address: Address, request: EngineRequest
    ) -> AsyncGenerator[EngineChunk | EngineFault, None]:
        """Yield the replica's items up to the last one. Closing this iterator closes the connection, unless it is done.

        Raises `ReplicaGone`, before the first item, or `ReplyBroken`.
        """
        line = self._kept(address) or await _connected(address)
        is_done = False
        try:
            line.writer.write(asked_bytes(request, address.token))
            await line.writer.drain()
            while not is_done:
                item = await read_frame(line.reader)
                if is_done := is_last(item):
                    self._keep(address, line)
                yield item
        except WrongToken:
            # Another replica listens on the port that this one had.
            raise ReplicaGone(f"{address.host}:{address.port} is another replica's") from None
        except (asyncio.IncompleteReadError, OSError) as error:
            raise ReplyBroken(str(error)) from error
        finally:
            if not is_done:
                line.writer.transport.abort()

    def _kept(self, address: Address) -> _Line | None:
        idle, now = self._idle[address], asyncio.get_running_loop().time()
        while idle:
            line = idle.pop()
            if line.is_usable(now):
                return line
            line.writer.close()
        return None

    def _keep(self, address: Address, line: _Line) -> None:
        line.kept_at = asyncio.get_running_loop().time()
        self._idle[address].append(line)
        for other, idle in list(self._idle.items()):
            while idle and not idle[0].is_usable(line.kept_at):
                idle.popleft().writer.close()
            if not idle:
                del self._idle[other]

    async def close(self) -> None:
        for idle in self._idle.values():
            for line in idle:
                line.writer.close()
        self._idle.clear()


async def _connected(address: Address) -> _Line:
    try:
        async with asyncio.timeout(CONNECT_S):
            line = _Line(*await asyncio.open_connection(address.host, address.port, limit=READ_AHEAD_BYTES))
    except OSError as error:
        if error.errno in OUT_OF_RESOURCES:
            raise ReplyBroken(str(error)) from error
        raise ReplicaGone(str(error)) from error
    give_up_on_a_vanished_machine(line.writer.get_extra_info("socket"))
    return line


def give_up_on_a_vanished_machine(connection: socket.socket) -> None:
    """Have the kernel do so, whether it has been sent something or is waited for."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, 2),
        (socket.TCP_KEEPINTVL, 1),
        (socket.TCP_USER_TIMEOUT, VANISHED_S * 1000),
    ):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
