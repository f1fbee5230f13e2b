"""The coordinator in the process that started the server: it owns the port, and counts the rate limits for all.

It answers on Unix sockets in a folder that only its owner may enter, which is how it knows who is asking. It runs in a
thread with its own event loop, since the main thread waits for signals.
"""

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
from serve.processes.listener import BACKLOG, NO_SLOT, ConnectionCounts, bound_socket, given_socket
from serve.processes.rate_limit_counters import CountersServer
from serve.processes.run_folder import COUNTERS_SOCKET, LISTENER_SOCKET

ANSWER_S = 10.0
RETRY_S = 0.1
logger = logging.getLogger("pith.coordinator")


class Coordinator:
    """Gives the listening socket to each HTTP process that asks, and counts rate limits for all of them.

    The port is bound at once but listens only when the first process asks: until then clients are refused, not left
    waiting. On a socket that a service manager keeps they wait.
    """

    def __init__(self, host: str, port: int) -> None:
        self._bound = given_socket(os.environ, host, port) or bound_socket(host, port, shared=False)
        self._counts_descriptor = ConnectionCounts.make()
        self._connections = ConnectionCounts(self._counts_descriptor)
        self._rate_limits = CountersServer(MemoryCounters())
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        return int(self._bound.getsockname()[1])

    async def open(self, folder: Path) -> None:
        """Start answering. Raises `OSError` where it cannot listen in `folder`."""
        requests = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            requests.bind(str(folder / LISTENER_SOCKET))
            requests.listen()
            requests.setblocking(False)
            self._counting = await asyncio.start_unix_server(
                self._rate_limits.answer, folder / COUNTERS_SOCKET
            )
        except OSError:
            requests.close()
            raise
        self._begin(self._hand_out_sockets(requests))

    async def shut(self) -> None:
        """Stop answering."""
        self._counting.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def stop_listening(self) -> None:
        """From here on the port stays open only while an HTTP process keeps it open."""
        self._bound.close()

    def close(self) -> None:
        self.stop_listening()
        self._connections.close()
        os.close(self._counts_descriptor)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _hand_out_sockets(self, requests: socket.socket) -> None:
        with requests:
            while True:
                try:
                    asking, _ = await asyncio.get_running_loop().sock_accept(requests)
                except OSError as error:
                    # Too many open files, say. The process that asked is waiting, and nothing else would serve it.
                    logger.error("cannot hand an HTTP process its socket: %s", error)
                    await asyncio.sleep(RETRY_S)
                    continue
                self._begin(self._hand_out_socket(asking))

    async def _hand_out_socket(self, asking: socket.socket) -> None:
        """Send the listening socket and the connection counts; free the slot when the process ends."""
        slot = self._connections.take_slot()
        try:
            with asking:
                asking.setblocking(False)
                asking.sendmsg(*self._message(slot))
                await asyncio.get_running_loop().sock_recv(asking, 1)
        except OSError as error:
            logger.info("an HTTP process disconnected: %s", error)
        finally:
            if slot is not None:
                self._connections.free_slot(slot)

    def _message(self, slot: int | None) -> tuple[list[bytes], list[tuple[int, int, bytes]]]:
        """The slot with the descriptors; or why there are none."""
        try:
            self._bound.listen(BACKLOG)
        except OSError as error:
            return [str(error).encode()], []
        descriptors = array("i", [self._bound.fileno(), self._counts_descriptor])
        word = NO_SLOT if slot is None else str(slot)
        return [word.encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors.tobytes())]


@contextmanager
def open_coordinator(host: str, port: int, folder: Path) -> Iterator[Coordinator]:
    """A coordinator that answers, in a thread of its own, until the block ends. Raises `OSError`."""
    coordinator = Coordinator(host, port)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="coordinator", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(coordinator.open(folder), loop).result(ANSWER_S)
        try:
            yield coordinator
        finally:
            asyncio.run_coroutine_threadsafe(coordinator.shut(), loop).result(ANSWER_S)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(ANSWER_S)
        loop.close()
        coordinator.close()
