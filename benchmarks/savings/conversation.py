"""Agents' sessions as the requests that the agent sent: one for each message that the assistant wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.evaluation import datasets
from benchmarks.evaluation.suites import traces as traces_of
from benchmarks.load.server import CannotRun

Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Conversation:
    """A trace. Traces of one task have the same `task`."""

    task: str
    messages: tuple[Message, ...]

    def without_system(self) -> Conversation:
        return Conversation(self.task, tuple(each for each in self.messages if each["role"] != "system"))

    def requests(self) -> Iterator[tuple[Message, ...]]:
        """The messages of each request, all that was said before: each begins with the one before it."""
        for at, message in enumerate(self.messages):
            if at and message["role"] == "assistant":
                yield self.messages[:at]


def conversations(data: Path, how_many: int | None) -> list[Conversation]:
    """Of every tau file in the folder; fewer are taken evenly from all. Raises `CannotRun` where there is none."""
    traces = [
        trace for path in sorted(data.glob("tau*.jsonl.gz")) for trace in datasets.read(path, traces_of.trace)
    ]
    if not traces:
        raise CannotRun(f"{data} has no tau*.jsonl.gz, whose sessions are replayed")
    chosen = (
        traces
        if how_many is None
        else [traces[at * len(traces) // how_many] for at in range(min(how_many, len(traces)))]
    )
    return [Conversation(each.task, each.messages) for each in chosen]
