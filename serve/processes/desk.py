"""What the process that started the server does for its HTTP processes: it keeps the port and the counts of limits.

It answers on Unix sockets in a folder that only its owner may enter; that is how it knows who asks. It runs in a thread
with an event loop of its own, since the main thread waits for signals.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from array import array
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from billing.rate_limits.counters import MemoryCounters
from serve.processes.board import Board
from serve.processes.counters_port import CountersPort
from serve.processes.door import BACKLOG, NO_SEAT, bound_socket
from serve.processes.folder import COUNTERS_SOCKET, DOOR_SOCKET

ANSWER_S = 10.0
RETRY_S = 0.1
logger = logging.getLogger("pith.desk")


class Desk:
    """Gives the listening socket to each HTTP process that asks, and counts the limits of all.

    The port is taken at once and listens when the first asks: until then a client is refused, and not left to wait.
    """

    def __init__(self, host: str, port: int) -> None:
        self._bound = bound_socket(host, port, shared=False)
        self._board_descriptor = Board.make()
        self._board = Board(self._board_descriptor)
        self._counters = CountersPort(MemoryCounters())
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        return int(self._bound.getsockname()[1])

    async def open(self, folder: Path) -> None:
        """Answer from now on. Raises `OSError` where it cannot listen in `folder`."""
        doors = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            doors.bind(str(folder / DOOR_SOCKET))
            doors.listen()
            doors.setblocking(False)
            self._counting = await asyncio.start_unix_server(self._counters.answer, folder / COUNTERS_SOCKET)
        except OSError:
            doors.close()
            raise
        self._begin(self._give_doors(doors))

    async def shut(self) -> None:
        """Answer no more."""
        self._counting.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def stop_listening(self) -> None:
        """From here on the port is open for as long as the HTTP processes that have it keep it so."""
        self._bound.close()

    def close(self) -> None:
        self.stop_listening()
        self._board.close()
        os.close(self._board_descriptor)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _give_doors(self, doors: socket.socket) -> None:
        with doors:
            while True:
                try:
                    asking, _ = await asyncio.get_running_loop().sock_accept(doors)
                except OSError as error:
                    # Such as too many open files. Who asks waits, and nobody else would ever take it in.
                    logger.error("an HTTP process waits for its socket: %s", error)
                    await asyncio.sleep(RETRY_S)
                    continue
                self._begin(self._give_door(asking))

    async def _give_door(self, asking: socket.socket) -> None:
        """Send the socket and the board, and take the seat back when the process that asked has ended."""
        seat = self._board.take_seat()
        try:
            with asking:
                asking.setblocking(False)
                asking.sendmsg(*self._gift(seat))
                await asyncio.get_running_loop().sock_recv(asking, 1)
        except OSError as error:
            logger.info("an HTTP process left: %s", error)
        finally:
            if seat is not None:
                self._board.leave(seat)

    def _gift(self, seat: int | None) -> tuple[list[bytes], list[tuple[int, int, bytes]]]:
        """A message: the seat, and beside it the descriptors. Without these where there is none to give, and why."""
        try:
            self._bound.listen(BACKLOG)
        except OSError as error:
            return [str(error).encode()], []
        descriptors = array("i", [self._bound.fileno(), self._board_descriptor])
        word = NO_SEAT if seat is None else str(seat)
        return [word.encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors.tobytes())]


@contextmanager
def open_desk(host: str, port: int, folder: Path) -> Iterator[Desk]:
    """A desk that answers, in a thread, until the block ends. Raises `OSError`."""
    desk = Desk(host, port)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="desk", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(desk.open(folder), loop).result(ANSWER_S)
        try:
            yield desk
        finally:
            asyncio.run_coroutine_threadsafe(desk.shut(), loop).result(ANSWER_S)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(ANSWER_S)
        loop.close()
        desk.close()
