"""Deadlines for reading a reply: a client that stops reading, or reads for ever, counts as one that has left.

A response's `send` waits while the connection's buffer is full, and nothing else would ever end that wait. Here the
connection is cut instead, buffer and all, and to the application it looks like any client that leaves.
"""

import asyncio
import fcntl
import logging
import socket
import struct
import sys
import termios
from dataclasses import dataclass

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
    """What the client's machine has not acknowledged. The kernel takes from us in large steps, its queue moves in
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
