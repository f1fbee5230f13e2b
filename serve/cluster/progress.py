"""Progress of a start in plain words, for the operator; and `StartError`."""

import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import Protocol, TextIO

from serve.logs.outlet import START

REMIND_S = 5.0
logger = logging.getLogger(START)


class Says(Protocol):
    """Somebody who is told what goes on."""

    def begin(self, step: str) -> None: ...

    def say(self, line: str) -> None: ...


class Progress:
    """Prints a line when a step begins, and again every few seconds while it lasts."""

    def __init__(self, out: TextIO = sys.stdout) -> None:
        self._out = out
        self._logs = False
        self._started = time.monotonic()
        self._step = ""
        self._said_at = 0.0
        self._lock = threading.Lock()
        threading.Thread(target=self._remind, daemon=True).start()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    def begin(self, step: str) -> None:
        """Say that `step` has begun, unless it is the current one."""
        with self._lock:
            if step != self._step:
                self._step = step
                self._print(f"{step} …")

    def say(self, line: str) -> None:
        """Print a line that is not a step, and end the current step."""
        with self._lock:
            self._step = ""
            self._print(line)

    def say_in_logs(self) -> None:
        """From here on its lines are records of the log, for programs to read."""
        self._logs = True

    def _print(self, line: str) -> None:
        self._said_at = time.monotonic()
        if self._logs:
            logger.info("%s", line)
            return
        print(f"[{self.elapsed_s:5.1f} s] {line}", file=self._out, flush=True)

    def _remind(self) -> None:
        tick = threading.Event()
        while not tick.wait(1):
            with self._lock:
                if self._step and time.monotonic() - self._said_at >= REMIND_S:
                    self._print(f"still {self._step} …")


class Both:
    """Tells the operator, and one more."""

    def __init__(self, progress: Says, other: Callable[[str], None]) -> None:
        self._progress = progress
        self._other = other
        self._step = ""

    def begin(self, step: str) -> None:
        self._progress.begin(step)
        if step != self._step:
            self._step = step
            self._other(f"{step} …")

    def say(self, line: str) -> None:
        self._progress.say(line)
        self._other(line)


class StartError(Exception):
    """The server cannot start; the message says why in one line."""
