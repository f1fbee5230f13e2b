"""Tools' results in JSON and the values that later calls repeat: data for the calibration of results."""

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.evaluation import datasets
from benchmarks.evaluation.case import seeded
from benchmarks.evaluation.datasets import Passage, Records
from benchmarks.evaluation.metrics import holds_answer
from benchmarks.evaluation.retrieval import HardPassages
from benchmarks.evaluation.suites.traces import Message, Trace, calls_of, holds_value, needed_values, trace
from benchmarks.training.calibration.made_results import made_results
from compression.conversation.queries import QueryReader, Said, arguments_of
from compression.pipeline.compression_model import CompressionResult
from compression.tuning.observing import Question

SHORTEST = 400  # characters; shorter results are sent whole
# Questions of a tool: those of fewer would be judged by calls of one or two sessions.
FEWEST = 20
SEARCHES, LOOK_UPS, MADE = 240, 20, 160
HITS = 20


@dataclass(frozen=True, slots=True)
class Result:
    """A tool's result as chat compresses it: the query made of the conversation before it, what that has said, what
    must survive. `group` as in `Question`; `tool` is the call that gave it."""

    tool: str
    group: str
    query: str
    text: str
    known: tuple[str, ...]
    needed: tuple[str, ...]

    def holds(self, result: CompressionResult) -> bool:
        return all(holds_value(result.output, value) for value in self.needed)

    def question(self, suite: str) -> Question:
        return Question(suite, self.group, self.query, self.text, self.holds, True, self.known)


@dataclass(frozen=True, slots=True)
class Search:
    """Hits as JSON, one of which answers."""

    query: str
    text: str
    answers: tuple[str, ...]

    def holds(self, result: CompressionResult) -> bool:
        return holds_answer(result.output, self.answers)


def result_questions(folder: Path) -> Iterator[Question]:
    """Of every kind. Deterministic."""
    for path in sorted(folder.glob("tau*.jsonl.gz")):
        found = [result for each in datasets.read(path, trace) for result in results_of(each)]
        sizes = Counter(result.tool for result in found)
        for result in found:
            if sizes[result.tool] >= FEWEST:
                yield result.question(f"{path.name.removesuffix('.jsonl.gz')}_results")
    for search in _searches(datasets.read(folder / "nq_open_oracle.jsonl.gz", datasets.passage)):
        yield Question("asked_results", search.query, search.query, search.text, search.holds, True)
    for result in _look_ups(datasets.read(folder / "kv_75.jsonl.gz", datasets.records)):
        yield result.question("asked_results")
    for number, (domain, query, text, needed) in enumerate(made_results(MADE)):
        made = Result(domain, f"{domain}-{number}", query, text, (), needed)
        yield made.question("made_results")


def results_of(trace: Trace) -> Iterator[Result]:
    """For each call that repeats values of earlier results, the last results that have them. Values that are in what is
    sent whole are left out."""
    messages = [message for message in trace.messages if message["role"] != "system"]
    blocks = _blocks(messages)
    for at, message in enumerate(messages):
        wanted: dict[int, list[str]] = {}
        for value in needed_values(messages[:at], calls_of(message)) if calls_of(message) else ():
            if any(holds_value(text, value) for text in _whole(messages[:at])):
                continue
            having = [
                other for other in blocks if other < at and holds_value(messages[other]["content"], value)
            ]
            if having:
                wanted.setdefault(having[-1], []).append(value)
        for block, values in wanted.items():
            tool, query, known = blocks[block]
            text = messages[block]["content"]
            yield Result(tool, f"trace {trace.task}", query, text, known, tuple(values))


def _blocks(messages: Sequence[Message]) -> dict[int, tuple[str, str, tuple[str, ...]]]:
    """By message: the tool, the query and what was said before, of each result that is long and JSON."""
    reader, said = QueryReader(), Said()
    tools: dict[str, str] = {}
    found = {}
    for at, message in enumerate(messages):
        text = message.get("content") or ""
        if message["role"] == "tool" and len(text) >= SHORTEST and text.lstrip()[:1] in ("{", "["):
            query = reader.query_of(message, text, "")
            found[at] = (tools.get(message["tool_call_id"], "other"), query, said.known_in(text))
        reader.read(message, [text])
        for call in calls_of(message):
            tools[call["id"]] = call["function"]["name"]
        for whole in _whole([message]):
            said.read(whole)
    return found


def _whole(messages: Sequence[Message]) -> Iterator[str]:
    """What is sent whole of them, and the results that are too short to be compressed."""
    for message in messages:
        text = message.get("content") or ""
        if message["role"] != "tool" or len(text) < SHORTEST:
            yield text
        yield from arguments_of(message)


def _searches(rows: Sequence[Passage]) -> Iterator[Search]:
    hard = HardPassages(rows)
    held_out = [row for row in rows if datasets.is_held_out(row.question)]
    for row in seeded("calibration searches").sample(held_out, min(SEARCHES, len(held_out))):
        rng = seeded(f"search {row.question}")
        hits = [row, *hard.beside(row, rng.choice((4, 9, HITS - 1, HITS - 1)))]
        rng.shuffle(hits)
        call = f"search {json.dumps({'query': row.question})}"
        yield Search(f"{row.question}\n{call}", json.dumps(_listed(hits, rng)), row.answers)


def _listed(hits: Sequence[Passage], rng: random.Random) -> Any:
    """Hits as search tools write them: bare, with what they were found by, or deep inside."""
    shape = rng.randrange(4)
    if shape == 0:
        return [{"title": hit.title, "text": hit.text} for hit in hits]
    if shape == 1:
        found = [
            {
                "id": rng.randrange(10**5, 10**7),
                "title": hit.title,
                "score": round(rng.random(), 4),
                "snippet": hit.text,
            }
            for hit in hits
        ]
        return {"results": found, "total": rng.randrange(20, 9999), "took_ms": rng.randrange(9, 400)}
    dated = [f"20{rng.randrange(10, 25)}-{rng.randrange(1, 13):02}-11" for _ in hits]
    if shape == 2:
        return {
            "hits": [
                {"name": hit.title, "body": hit.text, "date": date}
                for hit, date in zip(hits, dated, strict=True)
            ]
        }
    pages = [
        {
            "url": f"/wiki/{hit.title.replace(' ', '_')}",
            "content": hit.text,
            "language": "en",
            "indexed": date,
        }
        for hit, date in zip(hits, dated, strict=True)
    ]
    return {"data": {"pages": [{"key": f"{rng.getrandbits(40):010x}", "page": page} for page in pages]}}


def _look_ups(rows: Sequence[Records]) -> Iterator[Result]:
    for row in seeded("calibration look-ups").sample(list(rows), min(LOOK_UPS, len(rows))):
        query = f"What is {row.key} set to?\nget_settings {{}}"
        yield Result("settings", row.key, query, json.dumps(dict(row.pairs)), (), (row.value,))
