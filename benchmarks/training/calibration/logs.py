"""Logs with known kinds of errors among much noise, in several styles, drawn with a fixed seed."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from benchmarks.evaluation.case import Case, Need, Span, join, seeded, spans_of

Stamp = Callable[[datetime, str, str, str], str]
LINES = 300

STYLES: tuple[Stamp, ...] = (
    lambda at, level, part, text: (
        f"{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03d} {level} [{part}] {text}"
    ),
    lambda at, level, part, text: f"{at:%y%m%d %H%M%S} {at.second * 7} {level} {part}: {text}",
    lambda at, level, part, text: f"[{at:%a %b %d %H:%M:%S %Y}] [{level.lower()}] {part} {text}",
    lambda at, level, part, text: (
        f"{at:%b %d %H:%M:%S} node-{at.second % 4} {part}[{1000 + at.second}]: {text}"
    ),
    lambda at, level, part, text: (
        f"{at.isoformat(timespec='milliseconds')} level={level.lower()} component={part} {text}"
    ),
)
# What is logged all the time. Braces are filled in again for each line.
NOISE = (
    "Received block blk_{long} of size {size} from /10.{a}.{b}.{c}",
    "Served request {hex} in {small} ms",
    "Accepted connection from 10.{a}.{b}.{c}:{port}",
    "Heartbeat sent to worker-{a}, queue length {small}",
    "Finished task {small}.0 in stage {a}.0 (TID {size}). {port} bytes result sent to driver",
    "session opened for user deploy by (uid={a})",
    "Cache hit for key user:{size}, {small} entries",
    "GC pause of {small} ms, heap at {b}%",
    "Verification succeeded for blk_{long}",
    "Starting job {hex} on partition {a}",
    "GET /api/v2/orders/{size} 200 {small}ms",
    "Renewed lease {hex} for {port} s",
)
# Messages that recur and are not an error of interest.
RETRIES = (
    "Retrying connect to server: node-{a}/10.{a}.{b}.{c}:8020. Already tried {small} time(s)",
    "Slow poll of partition {a}: {small} ms",
    "Connection pool at {b}% of its size",
)
ERRORS = (
    "Failed to replicate block blk_{long}: no space left on device /dev/sd{a}",
    "Authentication failure for user admin from 10.{a}.{b}.{c} port {port}",
    "java.lang.OutOfMemoryError: Java heap space in task {small}.0",
    "Timed out after {port} ms waiting for lock on table orders",
    "Checksum mismatch in segment {hex}: expected {long}",
    "Could not parse message {size}: unexpected end of input",
    "Upstream payments returned 503 for request {hex}",
    "Certificate of gateway.example expired {a} days ago",
    "Lost executor {a} on worker-{b}: remote client disassociated",
    "Deadlock detected between transactions {size} and {port}",
    "Disk quota exceeded for volume vol-{a}",
    "child process {port} still did not exit, sending a SIGKILL",
    "Permission denied while writing /var/spool/queue/{hex}",
    "Schema version {a} is older than required {b}",
)
PARTS = (
    "dfs.DataNode",
    "auth",
    "scheduler",
    "orders-api",
    "storage.Replicator",
    "gateway",
    "jk2_init",
    "billing",
)


@dataclass(frozen=True, slots=True)
class _Event:
    level: str
    part: str
    template: str


def log_cases(count: int, suite: str = "logs_made") -> Iterator[Case]:
    """Each log is asked for all its errors, or for those of one component; a line of each kind is needed."""
    for number in range(count):
        yield _case(seeded(f"{suite} {number}"), suite, number)


def _case(rng: random.Random, suite: str, number: int) -> Case:
    style, parts = rng.choice(STYLES), rng.sample(PARTS, 4)
    errors = [_Event(rng.choice(("ERROR", "ERROR", "FATAL", "WARN")), rng.choice(parts), template)
              for template in rng.sample(ERRORS, rng.randint(2, 6))]  # fmt: skip
    events = _events(rng, parts, errors)
    at = datetime(2025, rng.randint(1, 12), rng.randint(1, 28), rng.randint(0, 23), tzinfo=UTC)
    lines = []
    for event in events:
        at += timedelta(milliseconds=rng.randint(5, 4000))
        lines.append(style(at, event.level, event.part, _filled(rng, event.template)))
    context, spans = join(lines, "\n")
    asked, query = _query(rng, errors)
    needs = tuple(_need(event, events, lines, spans) for event in asked)
    return Case(suite, f"{suite}-{number}", query, context, spans, None, (), spans_of(needs), True, needs)


def _events(rng: random.Random, parts: list[str], errors: list[_Event]) -> list[_Event]:
    noise = [_Event("INFO", rng.choice(parts), template) for template in rng.sample(NOISE, 6)]
    retry = _Event(rng.choice(("WARN", "INFO")), rng.choice(parts), rng.choice(RETRIES))
    events = [rng.choice(noise) for _ in range(LINES)]
    start, length = rng.randrange(LINES // 2), rng.randint(10, 110)
    events[start : start + length] = [
        retry if rng.random() < 0.85 else event for event in events[start : start + length]
    ]
    for event in errors:
        for at in rng.sample(range(LINES), rng.choice((1, 1, 2, 3, 8))):
            events[at] = event
    # A later kind may have taken the only line of an earlier one.
    for number, event in enumerate(errors):
        if event not in events:
            events[number] = event
    return events


def _query(rng: random.Random, errors: list[_Event]) -> tuple[list[_Event], str]:
    part = rng.choice(errors).part
    if rng.random() < 0.5:
        own = [event for event in errors if event.part == part]
        return own, rng.choice(
            ("What went wrong in {}?", "Which errors did {} report?", "Why did {} fail?")
        ).format(part)
    return errors, rng.choice(
        (
            "Which errors occurred, and when?",
            "What went wrong?",
            "List all failures in this log.",
            "Why did the system fail?",
        )
    )


def _need(event: _Event, events: list[_Event], lines: list[str], spans: tuple[Span, ...]) -> Need:
    at = [number for number, other in enumerate(events) if other is event or other == event]
    return Need(lines[at[0]], tuple(spans[number] for number in at))


def _filled(rng: random.Random, template: str) -> str:
    return template.format(
        long=rng.randrange(10**9, 10**12), size=rng.randint(1000, 99999), small=rng.randint(1, 900),
        port=rng.randint(1024, 65535), hex=f"{rng.randrange(16**8):08x}", a=rng.randint(1, 9), b=rng.randint(10, 99),
        c=rng.randint(1, 254),
    )  # fmt: skip
