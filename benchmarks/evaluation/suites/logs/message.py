"""A kind of message that a program writes into its log: component, level, frequency and text."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

GRAVE = ("warn", "error", "fatal")
_LEVELS = {"d": "debug", "i": "info", "w": "warn", "e": "error", "f": "fatal"}


@dataclass(frozen=True, slots=True)
class Message:
    """`text` has the names of values in braces. `weight` is its frequency, relative to the others of its log."""

    component: str
    level: str
    weight: int
    text: str

    @property
    def is_grave(self) -> bool:
        return self.level in GRAVE


@dataclass(frozen=True, slots=True)
class Entry:
    """One event: when, and with which process and thread, something was said. `text` has its values."""

    time: datetime
    process: int
    thread: str
    message: Message
    text: str


@dataclass(frozen=True, slots=True)
class LogFormat:
    """`line` writes an entry; `has_components` where lines name who speaks, `trace` the language of stack traces."""

    name: str
    line: Callable[[Entry], str]
    messages: tuple[Message, ...]
    threads: tuple[str, ...] = ("main",)
    has_components: bool = True
    trace: str = ""


def messages(block: str) -> tuple[Message, ...]:
    """Of lines `component | level and weight | text`, such as `ipc.Client | i9 | Retrying {host}`."""
    found = []
    for line in block.strip().splitlines():
        component, level, text = (part.strip() for part in line.split(" | ", 2))
        found.append(Message(component, _LEVELS[level[0]], int(level[1:] or 1), text))
    return tuple(found)
