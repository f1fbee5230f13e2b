"""The record of a check: what came of each part so far, as JSON and as tables that can be pasted."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

RUNNING = "running"


@dataclass(slots=True)
class Outcome:
    """What came of a part: `rows` are its figures, and `reason` why there are none, or no more."""

    part: str
    about: str
    state: str = RUNNING
    seconds: float = 0.0
    reason: str = ""
    rows: list[dict[str, Any]] = field(default_factory=list)


@dataclass(slots=True)
class Record:
    """`out` names two files, OUT.json and OUT.md, which are whole whenever they are there."""

    out: Path
    facts: Mapping[str, str]
    outcomes: list[Outcome] = field(default_factory=list)

    def write(self) -> None:
        self.out.parent.mkdir(parents=True, exist_ok=True)
        parts = [asdict(one) for one in self.outcomes]
        self._replace(".json", json.dumps({"facts": dict(self.facts), "parts": parts}, indent=2) + "\n")
        self._replace(".md", self.markdown())

    def _replace(self, ending: str, text: str) -> None:
        written = self.out.with_suffix(f"{ending}.new")
        written.write_text(text, encoding="utf-8")
        written.replace(self.out.with_suffix(ending))

    def markdown(self) -> str:
        """Facts, what became of each part, and a table of figures for each that has some."""
        lines = ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in self.facts.items()), ""]
        lines += ["| part | | seconds | |", "|---|---|---|---|"]
        lines += [f"| {one.part} | {one.about} | {one.seconds:.0f} | {told(one)} |" for one in self.outcomes]
        for one in self.outcomes:
            lines += _figures(one)
        return "\n".join(lines) + "\n"


def told(one: Outcome) -> str:
    return f"{one.state}: {one.reason}".replace("|", "\\|") if one.reason else one.state


def _figures(one: Outcome) -> Iterator[str]:
    if not one.rows:
        return
    names = list(dict.fromkeys(name for row in one.rows for name in row))
    yield from ("", f"**{one.part}**: {one.about}", "")
    yield f"| {' | '.join(names)} |"
    yield "|---" * len(names) + "|"
    for row in one.rows:
        yield f"| {' | '.join(cell(row.get(name, '')) for name in names)} |"


def cell(value: Any) -> str:
    if not isinstance(value, float):
        return str(value).replace("|", "\\|")
    return f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"
