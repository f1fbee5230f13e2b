"""Accepts connections from a listening socket that other processes may share, each taking its fair part."""

import asyncio
import logging
import socket
from collections.abc import Callable, Collection
from errno import EMFILE, ENFILE, ENOBUFS, ENOMEM

from serve.processes.listener import Listener

TAKEN_AT_ONCE = 64
# How many a process that is ahead takes at once, where the others did not come to take them.
TAKEN_FOR_OTHERS = 8
# More connections than another process by this many, or by this part of its own, is still fair.
AHEAD, AHEAD_PART = 2, 1 / 8
# How long the others get to come first.
STEP_BACK_S = 0.001
# Without these, no connection can be accepted; those that wait are not lost.
OUT_OF_RESOURCES = (EMFILE, ENFILE, ENOBUFS, ENOMEM)
RETRY_S = 0.1
logger = logging.getLogger("pith.http")


class Acceptor:
    """Stands in for an asyncio server, whose methods uvicorn calls.

    libuv, and so uvloop, accepts one connection in a turn of the event loop: of a thousand that come at once, the last
    would be seen after a thousand turns of work on the others, and a health probe would wait with it. And among
    processes that share a socket, the first to wake would take them all, so a process that is ahead waits a moment.
    """

    def __init__(
        self, listener: Listener, make: Callable[[], asyncio.Protocol], connections: Collection[object]
    ) -> None:
        self._listener = listener
        self._make = make
        self._connections = connections
        self._adopting: set[asyncio.Task[object]] = set()
        self._resuming: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._watch()

    def publish(self) -> None:
        """Let the other processes see how many connections this one has, while it takes any."""
        if self._is_closed:
            return
        self._listener.write(self._count())

    def close(self) -> None:
        """Accept no more."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._resuming is not None:
            self._resuming.cancel()
        self._loop.remove_reader(self._listener.sock.fileno())
        self._listener.close()

    @property
    def adopting(self) -> int:
        """Connections that were accepted, and have no protocol yet."""
        return len(self._adopting)

    def take_what_waits(self) -> None:
        """Of a socket that no other process takes from: with it they would be reset."""
        while not self._is_closed and self._listener.is_own and self._take_one():
            pass

    async def wait_closed(self) -> None:
        await asyncio.gather(*self._adopting, return_exceptions=True)

    def _watch(self) -> None:
        self._loop.add_reader(self._listener.sock.fileno(), self._take)

    def _pause(self, seconds: float, then: Callable[[], None]) -> None:
        self._loop.remove_reader(self._listener.sock.fileno())
        self._resuming = self._loop.call_later(seconds, then)

    def _take(self) -> None:
        if self._is_ahead():
            self._pause(STEP_BACK_S, self._take_for_others)
            return
        for _ in range(TAKEN_AT_ONCE):
            if not self._take_one() or self._is_ahead():
                break
        self.publish()

    def _take_for_others(self) -> None:
        """Take connections that the other processes did not: they have ended, or are busy."""
        self._watch()
        for _ in range(TAKEN_FOR_OTHERS):
            if not self._take_one():
                break
        self.publish()

    def _take_one(self) -> bool:
        try:
            connection, _address = self._listener.sock.accept()
        except OSError as error:
            # Usually none waits, or its client left before it was accepted.
            if error.errno in OUT_OF_RESOURCES:
                logger.error("connections wait and cannot be accepted: %s", error)
                self._pause(RETRY_S, self._watch)
            return False
        connection.setblocking(False)
        adopting = self._loop.create_task(self._adopt(connection))
        self._adopting.add(adopting)
        adopting.add_done_callback(self._adopting.discard)
        return True

    async def _adopt(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make, connection)
        except OSError as error:
            # Its client has left already.
            logger.debug("a connection ended before it began: %s", error)
            connection.close()

    def _count(self) -> int:
        return len(self._connections) + len(self._adopting)

    def _is_ahead(self) -> bool:
        fewest = self._listener.fewest_of_others()
        own = self._count()
        return fewest is not None and own > fewest + max(AHEAD, own * AHEAD_PART)
