"""The listening socket of an HTTP process, and its seat among those that share it."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

from serve.processes.board import Board
from serve.processes.folder import DOOR_SOCKET

BACKLOG = 4096
NO_SEAT = "none"
ASK_S = 10.0


class NoDoor(Exception):
    """The process that started the server gave no listening socket."""


@dataclass(frozen=True, slots=True)
class Door:
    """A socket that takes connections. `board` and `seat` are there where other processes take from the same one."""

    listener: socket.socket
    board: Board | None = None
    seat: int | None = None
    # Kept open: when it closes, the process that gave the socket knows that this one has ended.
    lifeline: socket.socket | None = None

    def write(self, connections: int) -> None:
        if self.board is not None and self.seat is not None:
            self.board.write(self.seat, connections)

    def fewest_of_others(self) -> int | None:
        if self.board is None or self.seat is None:
            return None
        return self.board.fewest_of_others(self.seat)

    def close(self) -> None:
        """Of this process alone: others that have the socket go on."""
        if self.board is not None and self.seat is not None:
            self.board.leave(self.seat)
        self.listener.close()
        if self.lifeline is not None:
            self.lifeline.close()


def bound_socket(host: str, port: int, *, shared: bool) -> socket.socket:
    """A socket that has the port and does not listen yet. `shared`: other sockets may be bound to it as well, and the
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


def own_door(host: str, port: int) -> Door:
    """A listening socket of one process's own, beside those of others on the same port. Raises `OSError`."""
    listener = bound_socket(host, port, shared=True)
    listener.listen(BACKLOG)
    return Door(listener)


def ask_for_door(folder: Path) -> Door:
    """The socket that the process which started the server keeps in `folder`. Raises `NoDoor`."""
    lifeline = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        lifeline.settimeout(ASK_S)
        lifeline.connect(str(folder / DOOR_SOCKET))
        word, descriptors, _, _ = socket.recv_fds(lifeline, 1024, 2)
    except OSError as error:
        lifeline.close()
        raise NoDoor(f"no listening socket from {folder / DOOR_SOCKET}: {error}") from error
    if len(descriptors) != 2:
        lifeline.close()
        raise NoDoor(f"no listening socket from {folder / DOOR_SOCKET}: {word.decode() or 'no answer'}")
    listener, board = descriptors
    seat = word.decode()
    door = Door(
        socket.socket(fileno=listener), Board(board), None if seat == NO_SEAT else int(seat), lifeline
    )
    # Its memory stays mapped.
    os.close(board)
    return door
