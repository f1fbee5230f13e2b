"""Kinds of input that people send: code, tracebacks, tables, filings, deliveries in JSON, tickets, policies, agents.

Rows come from the data folder's `third/`: a text and groups of spans, all groups needed and any span of a group
enough; or an agent's messages and the values of its next call.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.evaluation import datasets
from benchmarks.evaluation.case import Case, Need, Span, spans_of
from benchmarks.evaluation.suites.traces import Moment, case_of

FOLDER = "third"
# The suite that each file makes.
SUITES = {
    "agents": "agents_json",
    "code": "code",
    "json": "webhooks",
    "lang": "languages",
    "policies": "policies",
    "tatqa": "filings",
    "tickets": "support",
    "trace": "tracebacks",
    "wtq": "tables",
}


@dataclass(frozen=True, slots=True)
class KindRow:
    """`groups`: all are needed, and of each any one of its spans. `messages` and `values` are an agent's."""

    id: str
    query: str
    text: str
    groups: tuple[tuple[Span, ...], ...]
    messages: tuple[dict[str, Any], ...] = ()
    values: tuple[str, ...] = ()


def kind_row(row: dict[str, Any]) -> KindRow:
    """Raises `ValueError` for an alternative of several spans, which no file has."""
    if "messages" in row:
        return KindRow(row["id"], row["query"], "", (), tuple(row["messages"]), tuple(row["values"]))
    groups = tuple(tuple(_only(spans) for spans in group) for group in row["evidence"])
    return KindRow(row["id"], row["query"], row["text"], groups)


def _only(spans: list[list[int]]) -> Span:
    ((start, end),) = spans
    return start, end


def makers(folder: Path) -> dict[str, Callable[[], Iterator[Case]]]:
    """What makes the cases of each file that the folder's `third/` has."""

    def maker(path: Path, suite: str) -> Callable[[], Iterator[Case]]:
        return lambda: (case_of_row(row, suite) for row in datasets.read(path, kind_row))

    paths = {stem: folder / FOLDER / f"{stem}.jsonl.gz" for stem in SUITES}
    return {SUITES[stem]: maker(path, SUITES[stem]) for stem, path in paths.items() if path.exists()}


def case_of_row(row: KindRow, suite: str) -> Case:
    """Its documents are the paragraphs of the text."""
    if row.messages:
        now = Moment(row.messages, row.query, row.values)
        return replace(case_of(now, row.id, suite, row.id, is_json=True), is_held_out=is_held_out(row.id))
    needs = tuple(Need(row.text[slice(*group[0])], group) for group in row.groups)
    return Case(
        suite, row.id, row.query, row.text, _paragraphs(row.text), evidence=spans_of(needs),
        is_held_out=is_held_out(row.id), needs=needs,
    )  # fmt: skip


def is_held_out(name: str) -> bool:
    """Half of the rows: the files are small."""
    return hashlib.sha256(f"third {name}".encode()).digest()[0] < 128


def _paragraphs(text: str) -> tuple[Span, ...]:
    spans, at = [], 0
    for part in text.split("\n\n"):
        spans.append((at, at + len(part)))
        at += len(part) + 2
    return tuple(spans)
