"""CPU time of compression inside chat, turn by turn of one long session: `python -m benchmarks.savings.turns`.

A made-up agent reads files, records and logs: one tool result a turn, of some 3,300 tokens. What is timed of a turn is
what serves it, in this process: the blocks of all messages are found, looked up by content, and compressed where they
are new. The request's JSON is read outside of it, as any chat's is. Each turn's messages are parsed anew.
"""

import argparse
import json
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from benchmarks.evaluation.case import seeded
from benchmarks.load.report import table
from benchmarks.savings.evidence import TOKENIZER
from compression.build import load_counter, plain_compressor
from compression.pipeline.compression_model import CompressionRequest
from compression.pipeline.spec import ModelSpec
from serve.prompt_compression.blocks import Block, find_blocks
from serve.prompt_compression.readings import Readings

Message = dict[str, Any]
RATIO = 0.3
RESULT_TOKENS = 3_300
# Turns around the one that is reported: a median of so many, of each kind of result as many.
WINDOW = 9
WORDS = (
    "order", "customer", "payment", "server", "worker", "queue", "invoice", "retry", "index", "cache", "session",
    "token", "upload", "parser", "schema", "route", "handler", "address", "report", "shipment", "ledger", "replica",
)  # fmt: skip


def _identifier(rng: random.Random) -> str:
    return f"{rng.choice(WORDS)}_{rng.randrange(10**6)}"


def _records(rng: random.Random, count: int) -> str:
    rows = [
        {"id": _identifier(rng), "name": " ".join(rng.sample(WORDS, 2)).title(), "amount": rng.randrange(10**5) / 100,
         "day": f"2026-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}", "open": rng.random() < 0.5}
        for _ in range(count)
    ]  # fmt: skip
    return json.dumps(rows)


def _file(rng: random.Random, count: int) -> str:
    lines = (
        f"    {_identifier(rng)} = {rng.choice(WORDS)}({_identifier(rng)}, {rng.randrange(99)})"
        for _ in range(count)
    )
    return "\n".join(f"{number:6}\t{line}" for number, line in enumerate(lines, 1))


def _log(rng: random.Random, count: int) -> str:
    times = (f"2026-11-{rng.randrange(1, 29):02} 10:{rng.randrange(60):02}:00" for _ in range(count))
    return "\n".join(f"{time} INFO {rng.choice(WORDS)}: {_identifier(rng)} done" for time in times)


MAKERS = (_records, _file, _log)


def turn(number: int) -> list[Message]:
    """What a turn adds: the user's or the task's next words, a call, its result."""
    rng = seeded(f"turn {number}")
    make = MAKERS[number % len(MAKERS)]
    arguments = json.dumps({"path": f"src/{rng.choice(WORDS)}.py", "id": _identifier(rng)})
    call = {"id": f"call_{number}", "type": "function", "function": {"name": "read", "arguments": arguments}}
    return [
        {"role": "user", "content": f"Now look at {_identifier(rng)} and its {rng.choice(WORDS)}."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": make(rng, RESULT_TOKENS // 32)},
    ]


class Session:
    """One conversation as a server meets it: every request has all of its messages."""

    def __init__(self) -> None:
        counter = load_counter(str(TOKENIZER), name="pith-mini")
        self.counter = counter
        self._compressor = plain_compressor(
            ModelSpec("lexical", "lexical", str(TOKENIZER), "pith-mini"), counter
        )
        self._values = partial(Readings().values, "project")
        self.outputs: dict[Block, str] = {}

    def answer(self, messages: Sequence[Message]) -> list[str]:
        """What is sent of each result."""
        sent = []
        for block in find_blocks(messages, "marked", self._values):
            if block not in self.outputs:
                asked = CompressionRequest(
                    block.query, block.text, RATIO, is_tool_result=block.is_tool_result, known=block.known
                )
                self.outputs[block] = self._compressor.compress(asked).output
            sent.append(self.outputs[block])
        return sent


def timed(session: Session, turns: int) -> Iterator[tuple[float, int]]:
    """CPU seconds of each turn, and the tokens of its prompt. Raises `AssertionError` where a prefix changed."""
    messages: list[Message] = []
    before: list[str] = []
    tokens = 0
    for number in range(turns):
        new = turn(number)
        messages += new
        tokens += sum(session.counter.count(str(each["content"] or "")) for each in new)
        given = json.loads(json.dumps(messages))
        started = time.process_time()
        sent = session.answer(given)
        yield time.process_time() - started, tokens
        assert sent[: len(before)] == before, f"turn {number + 1} changed what was sent before"
        before = sent


def around(seconds: Sequence[float], number: int) -> float:
    """Median of the turns around one, counted from 1."""
    first = max(0, min(number - 1 - WINDOW // 2, len(seconds) - WINDOW))
    return statistics.median(seconds[first : first + WINDOW])


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.savings.turns", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--turns", type=int, default=300)
    asked = parser.parse_args()
    measured = list(timed(Session(), asked.turns))
    seconds = [each for each, _ in measured]
    tenth = around(seconds, 10)
    shown = [number for number in (10, 50, 100, 200, asked.turns) if number <= asked.turns]
    rows = [
        [
            f"{number}",
            f"{measured[number - 1][1]:,}",
            f"{around(seconds, number) * 1000:.1f}",
            f"{around(seconds, number) / tenth:.2f}",
        ]
        for number in shown
    ]
    print("\n".join(table(["turn", "tokens so far", "CPU ms", "of the tenth's"], rows)))


if __name__ == "__main__":
    main()
