"""Writes lines in a thread of its own, so that whoever logs never waits: what cannot be written in time is dropped, and
counted."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable

Write = Callable[[bytes], None]
# Lines that may wait: at 500 bytes each, some five megabytes.
MOST_WAITING = 10_000
TOGETHER = 100
# How long a process that ends waits for its last lines to be written.
DRAIN_S = 0.5


class Outlet(logging.Handler):
    """A handler that formats at once and writes later. `dropped` is told how many lines were lost."""

    def __init__(
        self,
        write: Write,
        lines: logging.Formatter,
        *,
        most_waiting: int = MOST_WAITING,
        dropped: Callable[[int], None] = lambda count: None,
    ) -> None:
        super().__init__()
        self._write = write
        # Not the handler's own: Ray gives the handlers that it finds another one.
        self._lines = lines
        self._most_waiting = most_waiting
        self._dropped = dropped
        self._begin()
        # A fork has none of its parent's threads; a line of both would be written twice.
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._waiting: deque[bytes] = deque()
        self._lost = 0
        self._has_work = threading.Event()
        self._is_idle = threading.Event()
        self._is_idle.set()
        self._is_running = False

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self._lines.format(record).encode("utf-8", "backslashreplace") + b"\n"
        except Exception:
            # Nothing that is logged may end what logs it.
            self._lose(1)
            return
        if len(self._waiting) >= self._most_waiting:
            self._lose(1)
            return
        self._waiting.append(line)
        self._is_idle.clear()
        if not self._is_running:
            self._is_running = True
            threading.Thread(target=self._run, name="logs", daemon=True).start()
        self._has_work.set()

    def drain(self, within_s: float) -> None:
        """Return when all is written, or after that time."""
        self._is_idle.wait(within_s)

    def _lose(self, count: int) -> None:
        self._lost += count
        self._dropped(count)

    def _run(self) -> None:
        while True:
            self._has_work.wait()
            self._has_work.clear()
            while self._waiting:
                self._write_some()
            self._is_idle.set()
            if self._waiting:
                self._is_idle.clear()
                self._has_work.set()

    def _write_some(self) -> None:
        lines = [self._waiting.popleft() for _ in range(min(TOGETHER, len(self._waiting)))]
        if self._lost:
            lost, self._lost = self._lost, 0
            lines.append(self._of_lost(lost))
        for line in lines:
            try:
                self._write(line)
            except OSError:
                # Nobody reads it: there is nowhere to say so but the counter.
                self._dropped(1)

    def _of_lost(self, count: int) -> bytes:
        text = f"{count} lines of the log were dropped: what reads it is too slow"
        record = logging.LogRecord("pith.logs", logging.WARNING, "", 0, text, (), None)
        return self._lines.format(record).encode() + b"\n"
