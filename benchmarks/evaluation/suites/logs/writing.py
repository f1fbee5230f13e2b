"""Writes a log: a few frequent messages, bursts, incidents with several kinds of error, and stack traces."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from benchmarks.evaluation.suites.logs.message import Entry, LogFormat, Message
from benchmarks.evaluation.suites.logs.values import Values

LINES = 300
_JAVA = (
    "java.io.IOException: {} is gone\n\tat org.apache.{}.Connection.read(Connection.java:{})\n"
    "\tat org.apache.{}.Worker.run(Worker.java:{})\n\tat java.lang.Thread.run(Thread.java:745)"
)
_PYTHON = (
    'Traceback (most recent call last):\n  File "/usr/lib/{}/{}.py", line {}, in run\n    return self._call({})\n'
    "ConnectionError: no answer after {} attempts"
)


@dataclass(frozen=True, slots=True)
class Written:
    """One line and what it says; `more` is a stack trace under it."""

    message: Message
    line: str
    more: str = ""


def write_log(chosen: LogFormat, chance: random.Random, values: Values) -> list[Written]:
    clock = _Clock(chance)
    return [_written(chosen, message, chance, values, clock) for message in _events(chosen.messages, chance)]


class _Clock:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.now = datetime(2005, 1, 1) + timedelta(seconds=chance.randint(0, 20 * 365 * 86_400))

    def tick(self) -> datetime:
        self.now += timedelta(
            seconds=self._chance.expovariate(1.0), microseconds=self._chance.randint(0, 999_999)
        )
        return self.now


def _written(
    chosen: LogFormat, message: Message, chance: random.Random, values: Values, clock: _Clock
) -> Written:
    text = message.text.format_map(values)
    entry = Entry(clock.tick(), chance.randint(100, 9_999), chance.choice(chosen.threads), message, text)
    has_trace = chosen.trace and message.level in ("error", "fatal") and chance.random() < 0.3
    return Written(message, chosen.line(entry), _trace(chosen.trace, chance, values) if has_trace else "")


def _trace(language: str, chance: random.Random, values: Values) -> str:
    word, other = values["word"], values["word"]
    if language == "java":
        return _JAVA.format(word, other, chance.randint(1, 900), word, chance.randint(1, 900))
    return _PYTHON.format(word, other, chance.randint(1, 900), word, chance.randint(1, 9))


def _events(messages: Sequence[Message], chance: random.Random) -> list[Message]:
    usual = [message for message in messages if not message.is_grave]
    grave = [message for message in messages if message.is_grave]
    incidents = _incidents(chance.sample(grave, min(len(grave), chance.randint(5, 10))), chance)
    wanted = max(0, LINES - sum(map(len, incidents)))
    events = list(_usual(usual, wanted, chance))
    # Trouble begins once the program runs, and most of it late.
    for incident in incidents:
        at = int(len(events) * chance.triangular(0.1, 1, 0.8))
        for message in incident:
            events.insert(at, message)
            at += chance.choice((1, 1, 2, 4))
    return events


def _incidents(chosen: Sequence[Message], chance: random.Random) -> list[list[Message]]:
    """Each has up to three kinds of error, of which some come many times."""
    found: list[list[Message]] = []
    for message in chosen:
        count = (
            1 if chance.random() < 0.4 else min(40, 1 + int(chance.expovariate(1 / (1.5 * message.weight))))
        )
        if found and chance.random() < 0.5 and len(set(found[-1])) < 3:
            found[-1] += [message] * count
        else:
            found.append([message] * count)
    for incident in found:
        chance.shuffle(incident)
    return found


def _usual(usual: Sequence[Message], count: int, chance: random.Random) -> Iterator[Message]:
    weights = [message.weight * chance.lognormvariate(0, 1) for message in usual]
    left = count
    while left > 0:
        message = chance.choices(usual, weights)[0]
        burst = min(left, chance.randint(4, 30) if chance.random() < 0.06 else 1)
        yield from [message] * burst
        left -= burst
