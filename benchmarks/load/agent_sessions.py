"""Sessions of agents to replay: each turn has all that was said before, as its agent sent it.

Recorded ones are read from a file of one JSON object a line with `messages`; made-up ones have instructions that all
share, a task, and results of tools that nobody else gets.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from benchmarks.load.text import made_up

Message = Mapping[str, Any]
INSTRUCTIONS_CHARACTERS = 6_000
TASK_CHARACTERS = 200
RESULT_CHARACTERS = (100, 1_500)
# From one seed to the next: a session uses a few.
SEEDS = 1_000


def recorded(path: Path, most: int, seed: int) -> list[list[list[Message]]]:
    """The turns of at most so many sessions of a file, gzipped or not, in an order of `seed`'s. Raises `OSError`."""
    read = gzip.open if path.suffix == ".gz" else open
    with read(path, "rb") as lines:
        found = [orjson.loads(line)["messages"] for line in lines]
    random.Random(seed).shuffle(found)
    return [turns for messages in found if (turns := turns_of(messages))][:most]


def turns_of(messages: Sequence[Message]) -> list[list[Message]]:
    """What was sent for each reply of the agent."""
    return [
        list(messages[:at]) for at, message in enumerate(messages) if at and message["role"] == "assistant"
    ]


def invented(sessions: int, turns: int, seed: int) -> list[list[list[Message]]]:
    """So many, about so many turns long."""
    instructions = made_up(INSTRUCTIONS_CHARACTERS, seed=seed)
    return [_session(instructions, turns, seed + (number + 1) * SEEDS) for number in range(sessions)]


def _session(instructions: str, turns: int, seed: int) -> list[list[Message]]:
    rng = random.Random(seed)
    messages: list[Message] = [
        {"role": "system", "content": instructions},
        {"role": "user", "content": made_up(TASK_CHARACTERS, seed=seed)},
    ]
    asked = []
    for number in range(rng.randint(max(1, turns // 2), turns + turns // 2)):
        asked.append(list(messages))
        result = made_up(rng.randint(*RESULT_CHARACTERS), seed=seed + number + 1)
        messages += [
            {"role": "assistant", "content": f"I look into the {number + 1}. matter."},
            {"role": "user", "content": f"Result: {result}"},
        ]
    return asked


class Replay:
    """Gives the turns out, of so many sessions at once: whose turn it is, is drawn by lot."""

    def __init__(self, sessions: Sequence[Sequence[list[Message]]], live: int, seed: int) -> None:
        self._waiting = iter(sessions)
        self._rng = random.Random(seed)
        self._live = [iter(session) for session in islice(self._waiting, live)]

    def next(self) -> tuple[Any, list[Message]] | None:
        """A session, to be given back with `answered`, and its next turn; None where no session has a turn to give."""
        while self._live:
            session = self._live.pop(self._rng.randrange(len(self._live)))
            if (turn := next(session, None)) is not None:
                return session, turn
            self._live += [iter(after) for after in islice(self._waiting, 1)]
        return None

    def answered(self, session: Any) -> None:
        self._live.append(session)
