"""Has a process write its log lines: once, at its start."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from serve.logs.lines import LogFormat, formatter
from serve.logs.outlet import Outlet
from serve.logs.relay import writer_to

LogLevel = Literal["debug", "info", "warning", "error"]
# Of all others only warnings are written, whatever the level: their narration says what callers sent.
OURS = ("pith", "serve", "billing", "compression", "models")
# They come with handlers of their own.
WITH_HANDLERS = ("vllm",)
ACCESS = "pith.access"
START = "pith.serve"


@dataclass(frozen=True, slots=True)
class LogPlan:
    """How a process writes its lines: to the relay's socket, or without one to its own standard error."""

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
    """What `begin_logs` has returned; None where it was not called."""
    return next((each for each in logging.getLogger(OURS[0]).handlers if isinstance(each, Outlet)), None)
