"""The suites whose contexts a few lines build: hard passages, meetings, paragraphs, and JSON of many pairs."""

import json
from collections.abc import Iterator, Sequence

from benchmarks.evaluation import datasets
from benchmarks.evaluation.case import Case, join, seeded
from benchmarks.evaluation.datasets import Meeting, Paragraph, Passage, Records
from benchmarks.evaluation.retrieval import HardPassages

DOCUMENTS = 20
PARAGRAPHS = 10


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
            is_held_out=datasets.is_held_out(row.question),
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
    """Ten consecutive paragraphs of the file, five of one article and five of another, shuffled."""
    for start in range(0, len(rows), PARAGRAPHS):
        block = list(rows[start : start + PARAGRAPHS])
        order = list(range(len(block)))
        seeded(f"xquad {start}").shuffle(order)
        context, spans = join([block[index].text for index in order], "\n\n")
        for index, row in enumerate(block):
            for at, (question, answer) in enumerate(row.questions):
                yield Case(
                    suite, f"{suite}-{start + index}-{at}", question, context, spans, spans[order.index(index)],
                    (answer,), is_held_out=datasets.is_held_out(f"xquad block {start}"),
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
            datasets.is_held_out(row.key),
        )  # fmt: skip
