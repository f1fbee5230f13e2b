"""Writes log lines in a thread of its own, so that whoever logs never waits: what cannot be written is counted.

The processes of a server send their lines over a Unix socket to the one that was started, a datagram a line. Where that
is slow, the sender's thread waits, never its event loop.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from logging.handlers import QueueHandler, QueueListener
from pathlib import Path
from queue import Queue
from typing import Literal

from serve.logs.lines import LogFormat, formatter

Write = Callable[[bytes], None]
# Lines that may wait: at 500 bytes each, some five megabytes.
MOST_WAITING = 10_000
# How long a process that ends waits for its last lines to be written.
DRAIN_S = 0.5


class Outlet(QueueHandler):
    """A handler that formats at once and writes later. `dropped` is told how many lines were lost."""

    queue: Queue[bytes]

    def __init__(
        self,
        write: Write,
        lines: logging.Formatter,
        *,
        most_waiting: int = MOST_WAITING,
        dropped: Callable[[int], None] = lambda count: None,
    ) -> None:
        super().__init__(Queue(most_waiting))
        self._write = write
        # Not the handler's own: Ray gives the handlers that it finds another one.
        self._lines = lines
        self._dropped = dropped
        self._begin()
        # A fork has none of its parent's threads; a line of both would be written twice.
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self.queue = Queue(self.queue.maxsize)
        self._lost = 0
        self._writer: QueueListener | None = None

    def prepare(self, record: logging.LogRecord) -> bytes:
        return self._lines.format(record).encode("utf-8", "backslashreplace") + b"\n"

    def enqueue(self, record: logging.LogRecord) -> None:
        super().enqueue(record)
        if self._writer is None:
            self._writer = _Writer(self.queue, self)
            self._writer.start()

    def handleError(self, record: logging.LogRecord) -> None:
        """There is no room for it, or it cannot be formatted: nothing that is logged may end what logs it."""
        self._lost += 1
        self._dropped(1)

    def write(self, line: bytes) -> None:
        """To be called by the thread that writes."""
        for each in (line, *self._lost_lines()):
            try:
                self._write(each)
            except OSError:
                # Nobody reads it: there is nowhere to say so but the counter.
                self._dropped(1)

    def drain(self, within_s: float) -> None:
        """Return when all is written, or after that time."""
        with self.queue.all_tasks_done:
            self.queue.all_tasks_done.wait_for(lambda: not self.queue.unfinished_tasks, within_s)

    def _lost_lines(self) -> Iterator[bytes]:
        if self._lost:
            lost, self._lost = self._lost, 0
            text = f"{lost} lines of the log were dropped: what reads it is too slow"
            yield self.prepare(logging.LogRecord("pith.logs", logging.WARNING, "", 0, text, (), None))


class _Writer(QueueListener):
    """The thread that writes an outlet's lines."""

    def __init__(self, queue: Queue[bytes], outlet: Outlet) -> None:
        super().__init__(queue)
        self._outlet = outlet

    def handle(self, line: bytes) -> None:  # type: ignore[override]
        self._outlet.write(line)


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
    """Sends a line to the relay at `path`; to this process's own standard error where none listens."""
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


LogLevel = Literal["debug", "info", "warning", "error"]
# Of all others only warnings are written, whatever the level: their narration says what callers sent.
OURS = ("pith", "serve", "billing", "compression", "models")
# They come with handlers of their own.
WITH_HANDLERS = ("vllm",)
ACCESS = "pith.access"
START = "pith.serve"


@dataclass(frozen=True, slots=True)
class LogPlan:
    """The way in which a process writes its lines: to the relay's socket, or without one to its own standard error."""

    format: LogFormat = "text"
    level: LogLevel = "warning"
    socket: Path | None = None


# As a configuration has it that says nothing of logs.
LOGS = LogPlan()


def begin_logs(plan: LogPlan, *, dropped: Callable[[int], None] = lambda count: None) -> Outlet:
    """From here on every record of this process goes to one outlet, which is returned."""
    outlet = Outlet(writer_to(plan.socket), formatter(plan.format), dropped=dropped)
    for name in OURS:
        # Directly: libraries that are imported later put handlers of their own on the root.
        ours = logging.getLogger(name)
        ours.handlers[:] = [outlet]
        ours.propagate = False
        ours.setLevel(plan.level.upper())
    # Asked for by themselves: the line of each request, and what is said of the start.
    for name in (ACCESS, START):
        logging.getLogger(name).setLevel(logging.INFO)
    logging.captureWarnings(True)
    take_others(outlet)
    return outlet


def take_others(outlet: Outlet) -> None:
    """Have the warnings of all other loggers written by it: again once what sets up its own has been imported."""
    root = logging.getLogger()
    root.handlers[:] = [outlet]
    root.setLevel(logging.WARNING)
    for name in WITH_HANDLERS:
        other = logging.getLogger(name)
        other.handlers[:] = []
        other.propagate = True


def outlet_of_process() -> Outlet | None:
    """The outlet that `begin_logs` has returned; None where it was not called."""
    return next((each for each in logging.getLogger(OURS[0]).handlers if isinstance(each, Outlet)), None)
