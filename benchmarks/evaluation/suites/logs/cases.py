"""Questions about logs and the kinds of line that answer them: one line of each kind must survive."""

import random
from collections.abc import Iterator, Sequence

from benchmarks.evaluation.case import Case, Need, Span, seeded, spans_of
from benchmarks.evaluation.suites.logs.held_out_formats import HELD_OUT
from benchmarks.evaluation.suites.logs.layouts import laid_out
from benchmarks.evaluation.suites.logs.message import LogFormat, Message
from benchmarks.evaluation.suites.logs.trained_formats import TRAINED
from benchmarks.evaluation.suites.logs.values import Values
from benchmarks.evaluation.suites.logs.writing import Written, write_log

_ERRORS = (
    "Which errors occurred, and when?", "What errors are in this log?", "List the errors and say when each happened.",
    "Did anything fail? What, and at what time?",
)  # fmt: skip
_ALL_GRAVE = (
    "Which warnings and errors are there?", "What went wrong?", "Summarise all problems in this log.",
    "Is there anything in here that I should worry about?",
)  # fmt: skip
_OF_COMPONENT = (
    "What went wrong in {}?", "Why does {} have problems?", "Which problems did {} report?", "What is broken in {}?",
)  # fmt: skip
_OF_JOB = ("Why did {} fail?", "What happened to {}?", "Find the reason for the failure of {}.")
_LAID_OUT = 0.4


def log_cases(seed: str, count: int, *, held_out: bool) -> Iterator[Case]:
    """`count` cases, the same on every machine; training and held-out formats have no message in common."""
    suite = "logs_held_out" if held_out else "logs"
    number = 0
    while number < count:
        chance = seeded(f"{suite} {seed} {number}")
        formats = HELD_OUT if held_out else TRAINED
        chosen = formats[number % len(formats)]
        if not held_out and chance.random() < _LAID_OUT:
            chosen = laid_out(chosen, chance)
        yield _case(suite, f"{suite}-{seed}-{number}", chosen, chance, is_held_out=held_out)
        number += 1


def _case(suite: str, name: str, chosen: LogFormat, chance: random.Random, *, is_held_out: bool) -> Case:
    values = Values(chance)
    written = write_log(chosen, chance, values)
    context, spans = _joined(written)
    query, wanted = _question(chosen, written, values, chance)
    needs = tuple(
        Need(
            message.text,
            tuple(span for span, each in zip(spans, written, strict=True) if each.message == message),
        )
        for message in wanted
    )
    return Case(
        suite, name, query, context, spans, evidence=spans_of(needs), is_held_out=is_held_out, needs=needs
    )


def _joined(written: Sequence[Written]) -> tuple[str, tuple[Span, ...]]:
    """The log, and where each of its lines lies, without the stack trace under it."""
    parts, spans, at = [], [], 0
    for each in written:
        spans.append((at, at + len(each.line)))
        parts.append(f"{each.line}\n{each.more}" if each.more else each.line)
        at += len(parts[-1]) + 1
    return "\n".join(parts), tuple(spans)


def _question(
    chosen: LogFormat, written: Sequence[Written], values: Values, chance: random.Random
) -> tuple[str, list[Message]]:
    """The query and the kinds of line that it asks for, in the order in which they come."""
    grave = list(dict.fromkeys(each.message for each in written if each.message.is_grave))
    errors = [message for message in grave if message.level != "warn"]
    ways: list[tuple[tuple[str, ...], list[Message]]] = [(_ALL_GRAVE, grave)]
    if errors:
        ways += [(_ERRORS, errors)] * 2
    if chosen.has_components:
        component = chance.choice(grave).component
        own = [message for message in grave if message.component == component]
        ways += [(tuple(each.format(component) for each in _OF_COMPONENT), own)] * 3
    of_job = [message for message in grave if "{job}" in message.text]
    if of_job:
        ways.append((tuple(each.format(values.job) for each in _OF_JOB), of_job))
    phrases, wanted = chance.choice(ways)
    return chance.choice(phrases), wanted
