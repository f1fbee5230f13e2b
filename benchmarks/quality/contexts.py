"""The long contexts that the suite compresses, built alike on every machine from the files of a data folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.quality import data
from benchmarks.quality.case import Case, Need, join, seeded
from benchmarks.quality.data import Meeting, Paragraph, Passage, Records
from benchmarks.quality.retrieval import HardPassages
from benchmarks.quality.suites import dialogues, hops, made, traces
from benchmarks.quality.suites.logs import log_cases

__all__ = ["Case", "HardPassages", "Need", "join", "load", "seeded"]

DOCUMENTS = 20
PARAGRAPHS = 10
LOGS = 64


def passage_cases(rows: Sequence[Passage]) -> Iterator[Case]:
    """The gold passage among hard ones, in a shuffled order, each under its title."""
    hard = HardPassages(rows)
    for number, row in enumerate(rows):
        passages = [row, *hard.beside(row, DOCUMENTS - 1)]
        seeded(f"nq {row.question}").shuffle(passages)
        parts = [f"Document [{at}] (Title: {p.title}) {p.text}" for at, p in enumerate(passages, 1)]
        context, spans = join(parts, "\n\n")
        yield Case(
            "nq", f"nq-{number}", row.question, context, spans, spans[passages.index(row)], row.answers,
            is_held_out=data.is_held_out(row.question),
        )  # fmt: skip


def meeting_cases(meetings: Sequence[Meeting], suite: str, *, is_held_out: bool) -> Iterator[Case]:
    """A whole meeting, a line a turn; the evidence is the turns that the annotators marked."""
    for number, meeting in enumerate(meetings):
        context, spans = join([f"{speaker}: {content}" for speaker, content in meeting.turns], "\n")
        for at, query in enumerate(meeting.queries):
            marked = sorted(
                {t for first, last in query.spans for t in range(first, last + 1) if t < len(spans)}
            )
            evidence = tuple(spans[turn] for turn in marked)
            name = f"{suite}-{number}-{at}"
            yield Case(suite, name, query.query, context, spans, None, (), evidence, is_held_out)


def paragraph_cases(rows: Sequence[Paragraph], suite: str) -> Iterator[Case]:
    """Ten paragraphs that stand together in the file, five of the same article and five of another, shuffled."""
    for start in range(0, len(rows), PARAGRAPHS):
        block = list(rows[start : start + PARAGRAPHS])
        order = list(range(len(block)))
        seeded(f"xquad {start}").shuffle(order)
        context, spans = join([block[index].text for index in order], "\n\n")
        for index, row in enumerate(block):
            for at, (question, answer) in enumerate(row.questions):
                yield Case(
                    suite, f"{suite}-{start + index}-{at}", question, context, spans, spans[order.index(index)],
                    (answer,), is_held_out=data.is_held_out(f"xquad block {start}"),
                )  # fmt: skip


def record_cases(rows: Sequence[Records], suite: str) -> Iterator[Case]:
    """A JSON object of many pairs, one of which is asked for."""
    for number, row in enumerate(rows):
        members = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in row.pairs]
        body, spans = join(members, ",\n ")
        spans = tuple((start + 1, end + 1) for start, end in spans)
        pair = spans[[key for key, _ in row.pairs].index(row.key)]
        query = f'Extract the value of the key "{row.key}" from the JSON object.'
        yield Case(
            suite, f"{suite}-{number}", query, "{" + body + "}", spans, pair, (row.key, row.value), (pair,),
            data.is_held_out(row.key),
        )  # fmt: skip


Maker = Callable[[], Iterator[Case]]


def makers(folder: Path) -> dict[str, Maker]:
    """Every suite that the folder has files for, and what makes its cases."""
    found: dict[str, Maker] = {}
    for path in sorted(folder.glob("*.jsonl.gz")):
        found |= _makers_of(path, path.name.removesuffix(".jsonl.gz"))
    return found | _logs() if found else found


def _logs() -> dict[str, Maker]:
    """Logs are written here and need no file: those of the formats to train on, and those of others."""
    return {
        "logs": lambda: log_cases("suite", LOGS, held_out=False),
        "logs_held_out": lambda: log_cases("suite", LOGS, held_out=True),
    }


def _makers_of(path: Path, stem: str) -> dict[str, Maker]:
    def trace_cases(suite: str, *, is_json: bool) -> Iterator[Case]:
        return traces.cases(data.read(path, traces.trace), suite, is_json=is_json)

    family = stem.split("_")[0]
    if family == "nq":
        return _from_passages(path)
    if family == "qmsum":
        is_aside = stem != "qmsum_train"
        return {stem: lambda: meeting_cases(data.read(path, data.meeting), stem, is_held_out=is_aside)}
    if family == "xquad":
        return {stem: lambda: paragraph_cases(data.read(path, data.paragraph), stem)}
    if family == "kv":
        return {stem: lambda: record_cases(data.read(path, data.records), stem)}
    if family in ("hotpot", "wiki2", "musique"):
        parse = hops.answer_row if family == "musique" else hops.sentence_row
        return {
            stem: lambda: hops.cases(data.read(path, parse), stem, has_titles=True),
            f"{stem}_bare": lambda: hops.cases(data.read(path, parse), f"{stem}_bare", has_titles=False),
            **_dialogues_of(path, stem),
        }
    if family == "tau":
        return {
            f"{stem}_json": lambda: trace_cases(f"{stem}_json", is_json=True),
            f"{stem}_text": lambda: trace_cases(f"{stem}_text", is_json=False),
        }
    return {}


def _from_passages(path: Path) -> dict[str, Maker]:
    def rows() -> list[Passage]:
        return data.read(path, data.passage)

    return {
        "nq": lambda: passage_cases(rows()),
        "dialogues_nq": lambda: dialogues.passage_cases(rows(), "dialogues_nq"),
        "papers_nq": lambda: made.paper_cases(rows(), "papers_nq"),
        "tickets_nq": lambda: made.ticket_cases(rows(), "tickets_nq"),
        "chats_nq_json": lambda: made.chat_cases(rows(), "chats_nq_json"),
    }


def _dialogues_of(path: Path, stem: str) -> dict[str, Maker]:
    """MuSiQue's needs are no sentences, so no turns can be told from them."""
    if stem.startswith("musique"):
        return {}
    name = f"dialogues_{stem}"
    return {name: lambda: dialogues.hop_cases(data.read(path, hops.sentence_row), name)}


def load(folder: Path, suites: Sequence[str] | None = None) -> dict[str, list[Case]]:
    """The suites named, or every one that the folder has files for. Raises `FileNotFoundError` where it has none,
    and `KeyError` for a name that it has not."""
    found = makers(folder)
    if not found:
        raise FileNotFoundError(
            f"{folder} holds no nq*, qmsum*, xquad*, kv*, hotpot*, wiki2*, musique* or tau* file ending in .jsonl.gz"
        )
    return {name: list(found[name]()) for name in suites or found}
