"""All that was measured, and as JSON: parts of it may be measured in runs of their own and put together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from benchmarks.savings.idle import Pair
from benchmarks.savings.kept import Kept
from benchmarks.savings.replay import Session
from benchmarks.savings.reply import Reply

FILE = "measured.json"


@dataclass(slots=True)
class Measured:
    """`sessions` by prices and messages, `questions` by shape, `kept` by what was asked and the side, `idle` in
    milliseconds; `runs` are the facts of each run that had a part in it."""

    sessions: dict[str, list[Session]] = field(default_factory=dict)
    questions: dict[str, list[Session]] = field(default_factory=dict)
    kept: dict[str, list[Kept]] = field(default_factory=dict)
    idle: list[Pair] = field(default_factory=list)
    runs: list[Mapping[str, str]] = field(default_factory=list)

    def add(self, more: Measured) -> None:
        """What both have is `more`'s."""
        self.sessions |= more.sessions
        self.questions |= more.questions
        self.kept |= more.kept
        self.idle = more.idle or self.idle
        self.runs += more.runs

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / FILE).write_bytes(orjson.dumps(asdict(self)))


def key(*names: str) -> str:
    """Of what was measured so: prices and messages, or what was asked and the side."""
    return ", ".join(names)


def read(folder: Path) -> Measured:
    """Nothing, where nothing has been written."""
    path = folder / FILE
    if not path.is_file():
        return Measured()
    body: dict[str, Any] = orjson.loads(path.read_bytes())
    return Measured(
        {name: [_session(each) for each in some] for name, some in body["sessions"].items()},
        {name: [_session(each) for each in some] for name, some in body["questions"].items()},
        {name: [Kept(**each) for each in some] for name, some in body["kept"].items()},
        [(off, on) for off, on in body["idle"]],
        body["runs"],
    )


def _session(body: Mapping[str, Any]) -> Session:
    return Session(
        body["group"], {side: [Reply(**each) for each in some] for side, some in body["replies"].items()}
    )
