"""The listening socket of an HTTP process, and its slot among the processes that share it."""

import os
import socket
from dataclasses import dataclass
from pathlib import Path

from serve.processes.connection_counts import ConnectionCounts
from serve.processes.run_folder import LISTENER_SOCKET

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
        """Whether no other process takes connections from it."""
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
