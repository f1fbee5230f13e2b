"""Logs of real builds and test runs that failed: all of the causes must survive.

They were recorded by `python -m benchmarks.ci_logs`, with colours. Each is asked about as it was printed, without
colours, and with the times that CI systems write before each line.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.evaluation.case import Case, Need, Span, seeded, spans_of

RECORDED = Path(__file__).parent / "ci_logs.jsonl"
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_QUESTIONS = (
    "Why did this build fail?", "What went wrong in this run, and where?", "Which checks failed, and for what reason?",
    "Find every cause of the failure.",
)  # fmt: skip
FEWEST_LINES = 300
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
    """Four of each failure: with and without colours, with and without times. Before a short one comes a step that
    passed."""
    recorded = recordings()
    passed = next(each for each in recorded if not each.causes)
    failed = [each for each in recorded if each.causes]
    for number, recording in enumerate(failed):
        if recording.log.count("\n") < FEWEST_LINES:
            recording = replace(recording, log=f"{passed.log}\n{recording.log}")
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
    needs = tuple(
        Need(cause, tuple(
            _where(cause, line, start)
            for line, (start, _) in zip(lines, spans, strict=True)
            if cause in _COLOUR.sub("", line)
        ))
        for cause in recording.causes
    )  # fmt: skip
    query = _QUESTIONS[(number + has_colours + 2 * has_times) % len(_QUESTIONS)]
    return Case(
        "ci_logs", name, query, "\n".join(lines), tuple(spans), evidence=spans_of(needs),
        is_held_out=number % 2 == 1, needs=needs,
    )  # fmt: skip


def _where(cause: str, line: str, start: int) -> Span:
    """The cause in a line that may have colours: the longest part of it that has none inside."""
    at = _COLOUR.sub("", line).find(cause)
    parts, seen, begin = [], 0, 0
    for code in (*_COLOUR.finditer(line), None):
        end = len(line) if code is None else code.start()
        low, high = max(at, seen), min(at + len(cause), seen + end - begin)
        parts.append((high - low, start + begin + low - seen, start + begin + high - seen))
        seen += end - begin
        begin = end if code is None else code.end()
    return max(parts)[1:]


def _timed(lines: list[str], name: str) -> Iterator[str]:
    chance, now = seeded(name), _BEGIN
    for line in lines:
        now += timedelta(milliseconds=chance.randrange(400))
        yield f"{now:%Y-%m-%dT%H:%M:%S}.{now.microsecond // 1000:03d}Z {line}"
