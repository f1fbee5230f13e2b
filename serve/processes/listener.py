"""The listening socket that HTTP processes share: asking for it, and accepting a fair part of its connections."""

import asyncio
import logging
import mmap
import os
import socket
from array import array
from collections.abc import Callable, Collection, Mapping, MutableMapping
from dataclasses import dataclass
from errno import EMFILE, ENFILE, ENOBUFS, ENOMEM
from pathlib import Path

from serve.processes.run_folder import LISTENER_SOCKET

_BYTES = array("I").itemsize
SLOTS = 256
# Stored counts are one higher than the real ones, so that 0 marks a free slot.
_FREE = 0


class ConnectionCounts:
    """The connections of each HTTP process, so that the busier ones let the others accept: `SLOTS` numbers in an
    anonymous file, shared with every process that is given its descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, SLOTS * _BYTES)
        # Each is written in a single store: a reader sees either the old value or the new one.
        self._counts = memoryview(self._memory).cast("I")

    @staticmethod
    def make() -> int:
        """The descriptor of a new file. Raises `OSError`."""
        descriptor = os.memfd_create("pith-connections")
        os.ftruncate(descriptor, SLOTS * _BYTES)
        return descriptor

    def take_slot(self) -> int | None:
        """Takes a free slot; None if there is none. Only the coordinator may call it."""
        for slot, count in enumerate(self._counts):
            if count == _FREE:
                self._counts[slot] = 1
                return slot
        return None

    def free_slot(self, slot: int) -> None:
        self._counts[slot] = _FREE

    def write(self, slot: int, connections: int) -> None:
        self._counts[slot] = connections + 1

    def fewest_of_others(self, slot: int) -> int | None:
        """The connections of the least busy process other than `slot`; None if it is alone."""
        counts = self._counts.tolist()
        counts[slot] = _FREE
        return min(filter(None, counts), default=0) - 1 if any(counts) else None

    def close(self) -> None:
        self._counts.release()
        self._memory.close()


BACKLOG = 4096
NO_SLOT = "none"
ASK_S = 10.0


class NoListener(Exception):
    """The coordinator gave this process no listening socket."""


@dataclass(frozen=True, slots=True)
class Listener:
    """A socket that takes connections. `counts` and `slot` are set where other processes share it."""

    sock: socket.socket
    counts: ConnectionCounts | None = None
    slot: int | None = None
    # Kept open: when it closes, the coordinator knows that this process has ended.
    lifeline: socket.socket | None = None

    @property
    def is_own(self) -> bool:
        """True if no other process takes connections from it."""
        return self.lifeline is None

    def write(self, connections: int) -> None:
        if self.counts is not None and self.slot is not None:
            self.counts.write(self.slot, connections)

    def fewest_of_others(self) -> int | None:
        if self.counts is None or self.slot is None:
            return None
        return self.counts.fewest_of_others(self.slot)

    def close(self) -> None:
        """Closes this process's end only; others keep the socket."""
        if self.counts is not None and self.slot is not None:
            self.counts.free_slot(self.slot)
        self.sock.close()
        if self.lifeline is not None:
            self.lifeline.close()


def bound_socket(host: str, port: int, *, shared: bool) -> socket.socket:
    """A socket bound to the port that does not listen yet. `shared`: other sockets may bind the port too, and the
    kernel spreads connections over them. Raises `OSError`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind((host, port))
        bound.setblocking(False)
    except OSError:
        bound.close()
        raise
    return bound


# By systemd's protocol (sd_listen_fds): descriptors from here on, so many of them, for the process of that number.
FIRST_GIVEN, HOW_MANY, FOR_WHOM = 3, "LISTEN_FDS", "LISTEN_PID"


def is_given_socket(environment: Mapping[str, str]) -> bool:
    """Whether a service manager gave this process a socket."""
    return bool(environment.get(HOW_MANY)) and environment.get(FOR_WHOM) == str(os.getpid())


def given_socket(environment: MutableMapping[str, str], host: str, port: int) -> socket.socket | None:
    """The listening socket that a service manager keeps open over restarts, where it gave this process one. Its words
    are taken out of the environment, since they are for no other process.

    Raises `OSError` for anything but one TCP socket that listens on the host's address and the port."""
    is_ours = is_given_socket(environment)
    number, _ = environment.pop(HOW_MANY, ""), environment.pop(FOR_WHOM, "")
    if not is_ours:
        return None
    if number != "1":
        raise OSError(f"{number} sockets were given ({HOW_MANY}), and it takes one")
    sock = socket.socket(fileno=FIRST_GIVEN)
    listens = sock.type == socket.SOCK_STREAM and sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    found = sock.getsockname()
    wanted = [address[-1][:2] for address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    if not listens or not isinstance(found, tuple) or found[:2] not in wanted:
        raise OSError(
            f"the socket that was given ({HOW_MANY}) is {found}, and not one that listens on {host}, port {port}"
        )
    sock.setblocking(False)
    sock.set_inheritable(False)
    return sock


def own_listener(host: str, port: int) -> Listener:
    """A listening socket of this process's own. Raises `OSError`."""
    sock = bound_socket(host, port, shared=True)
    sock.listen(BACKLOG)
    return Listener(sock)


def ask_for_listener(folder: Path) -> Listener:
    """The socket that the coordinator whose run folder is `folder` shares. Raises `NoListener`."""
    lifeline = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        lifeline.settimeout(ASK_S)
        lifeline.connect(str(folder / LISTENER_SOCKET))
        word, descriptors, _, _ = socket.recv_fds(lifeline, 1024, 2)
    except OSError as error:
        lifeline.close()
        raise NoListener(f"no listening socket from {folder / LISTENER_SOCKET}: {error}") from error
    if len(descriptors) != 2:
        lifeline.close()
        raise NoListener(
            f"no listening socket from {folder / LISTENER_SOCKET}: {word.decode() or 'no answer'}"
        )
    sock, counts = descriptors
    slot = None if word.decode() == NO_SLOT else int(word)
    listener = Listener(socket.socket(fileno=sock), ConnectionCounts(counts), slot, lifeline)
    # The memory stays mapped.
    os.close(counts)
    return listener


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
        """Take them from a socket of its own: with it they would be reset."""
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
