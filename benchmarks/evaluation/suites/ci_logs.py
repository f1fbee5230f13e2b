"""Logs of real builds and test runs that failed: all of the causes must survive.

They were recorded by `python -m benchmarks.ci_logs`, with colours. Each is asked about as it was printed, without
colours, and with the times that CI systems write before each line.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.evaluation.case import Case, Need, Span, seeded, spans_of

RECORDED = Path(__file__).parent / "ci_logs.jsonl"
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_QUESTIONS = (
    "Why did this build fail?", "What went wrong in this run, and where?", "Which checks failed, and for what reason?",
    "Find every cause of the failure.",
)  # fmt: skip
_BEGIN = datetime(2026, 11, 24, 10, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Recording:
    """`causes`: words of which each stands in at least one line of the log."""

    name: str
    causes: tuple[str, ...]
    log: str


def recordings() -> list[Recording]:
    rows = map(json.loads, RECORDED.read_text().splitlines())
    return [Recording(row["name"], tuple(row["causes"]), row["log"]) for row in rows]


def ci_cases() -> Iterator[Case]:
    """Four of each recording: with and without colours, with and without times."""
    for number, recording in enumerate(recordings()):
        for has_colours in (False, True):
            for has_times in (False, True):
                yield _case(recording, number, has_colours=has_colours, has_times=has_times)


def _case(recording: Recording, number: int, *, has_colours: bool, has_times: bool) -> Case:
    kind = f"{'colours' if has_colours else 'plain'}-{'times' if has_times else 'bare'}"
    name = f"ci_logs-{recording.name}-{kind}"
    log = recording.log if has_colours else _COLOUR.sub("", recording.log)
    lines = log.split("\n")
    if has_times:
        lines = list(_timed(lines, name))
    spans, at = [], 0
    for line in lines:
        spans.append((at, at + len(line)))
        at += len(line) + 1
    plain = [_COLOUR.sub("", line) for line in lines]
    needs = tuple(
        Need(cause, tuple(_where(cause, line, span) for line, span in zip(plain, spans, strict=True) if cause in line))
        for cause in recording.causes
    )
    query = _QUESTIONS[(number + has_colours + 2 * has_times) % len(_QUESTIONS)]
    return Case(
        "ci_logs", name, query, "\n".join(lines), tuple(spans), evidence=spans_of(needs),
        is_held_out=number % 2 == 1, needs=needs,
    )  # fmt: skip


def _where(cause: str, line: str, span: Span) -> Span:
    """The words themselves where no colour is among them, else the line."""
    at = line.find(cause)
    is_plain = len(line) == span[1] - span[0]
    return (span[0] + at, span[0] + at + len(cause)) if is_plain else span


def _timed(lines: list[str], name: str) -> Iterator[str]:
    chance, now = seeded(name), _BEGIN
    for line in lines:
        now += timedelta(milliseconds=chance.randrange(400))
        yield f"{now:%Y-%m-%dT%H:%M:%S}.{now.microsecond // 1000:03d}Z {line}"
