"""How the lines of a server's processes come to the standard error of the one that was started: over a Unix socket.

A datagram is a line. Where the reader is slow the sender's thread waits, never its event loop, and its outlet drops.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from serve.logs.outlet import Write

# More than the longest line, whatever its characters.
LONGEST_LINE_BYTES = 200_000
_STDERR = 2
END_S = 1.0
_one_at_a_time = threading.Lock()
logger = logging.getLogger("pith.logs")


def write_to_stderr(line: bytes) -> None:
    """All of it, however long that takes: for a thread of its own. Raises `OSError`."""
    with _one_at_a_time:
        while line:
            line = line[os.write(_STDERR, line) :]


def writer_to(path: Path | None) -> Write:
    """What sends a line to the relay at `path`; to this process's own standard error where none listens."""
    if path is None:
        return write_to_stderr

    def write(line: bytes) -> None:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
                sending.sendto(line[:LONGEST_LINE_BYTES], str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            write_to_stderr(line)

    return write


@contextmanager
def relay(path: Path, dropped: Callable[[int], None] = lambda count: None) -> Iterator[None]:
    """Write what comes to `path` to standard error, in a thread, until the block ends; a line that cannot be written is
    left out, `dropped` is told, and how many were is said after the next one that can. Raises `OSError` where it cannot
    begin."""
    receiving = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    receiving.bind(str(path))
    thread = threading.Thread(target=_pass_on, args=[receiving, dropped], name="log relay", daemon=True)
    thread.start()
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        # What has come is read first.
        with suppress(OSError):
            receiving.shutdown(socket.SHUT_RD)
        thread.join(END_S)


def _pass_on(receiving: socket.socket, dropped: Callable[[int], None]) -> None:
    lost = 0
    with receiving:
        while line := _next_line(receiving):
            try:
                write_to_stderr(line)
            except OSError:
                # The disk is full, or the reader is gone: either may pass.
                lost += 1
                dropped(1)
                continue
            if lost:
                logger.warning("%d lines of the log could not be written", lost)
                lost = 0


def _next_line(receiving: socket.socket) -> bytes:
    """Empty where none comes any more."""
    try:
        return receiving.recv(LONGEST_LINE_BYTES)
    except OSError:
        return b""
