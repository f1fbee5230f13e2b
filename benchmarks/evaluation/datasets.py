"""The evaluation files as typed rows: what each file holds, and a clear error for a row that is malformed."""

import gzip
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

Row = TypeVar("Row")


class BadRow(ValueError):
    """A file of the data folder has a malformed line."""


@dataclass(frozen=True, slots=True)
class Passage:
    """One NaturalQuestions row: a question, its answers and the passage that holds one of them."""

    question: str
    answers: tuple[str, ...]
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class MeetingQuery:
    """A question about a meeting; the spans are pairs of first and last turn, both included."""

    query: str
    spans: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Meeting:
    turns: tuple[tuple[str, str], ...]
    queries: tuple[MeetingQuery, ...]


@dataclass(frozen=True, slots=True)
class Paragraph:
    text: str
    questions: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Records:
    """Key-value pairs and the one that is asked for."""

    pairs: tuple[tuple[str, str], ...]
    key: str
    value: str


def passage(row: dict[str, Any]) -> Passage:
    return Passage(row["question"], tuple(row["answers"]), row["title"], row["text"])


def meeting(row: dict[str, Any]) -> Meeting:
    turns = tuple((turn["speaker"], turn["content"]) for turn in row["meeting_transcripts"])
    queries = tuple(
        MeetingQuery(
            query["query"], tuple((int(first), int(last)) for first, last in query["relevant_text_span"])
        )
        for query in row["specific_query_list"]
    )
    return Meeting(turns, queries)


def paragraph(row: dict[str, Any]) -> Paragraph:
    return Paragraph(row["context"], tuple((qa["question"], qa["answer"]) for qa in row["qas"]))


def records(row: dict[str, Any]) -> Records:
    return Records(tuple((key, value) for key, value in row["ordered_kv_records"]), row["key"], row["value"])


def read(path: Path, parse: Callable[[dict[str, Any]], Row]) -> list[Row]:
    """Every row of one gzipped JSON-lines file. Raises `BadRow` with the file and line that is wrong."""
    rows = []
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                rows.append(parse(json.loads(line)))
            except (KeyError, TypeError, ValueError) as error:
                raise BadRow(f"{path.name}, line {number}: {type(error).__name__}: {error}") from error
    return rows


def is_held_out(key: str) -> bool:
    """Whether training leaves out a row: a fifth of the rows, by the hash of what names them."""
    return hashlib.sha256(key.encode()).digest()[0] < 51
