"""Rows of a user's own data: a query, a text or a conversation, and what must survive of it."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from compression.conversation import fault_in
from compression.pipeline.compression_model import CompressionResult
from compression.tuning.observing import Question

_MEMBERS = frozenset({"query", "input", "messages", "evidence", "answers"})
_SPACE = re.compile(r"\s+")
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_NOT_WORD = re.compile(r"[^\w\s]")
_DEEPEST = 200


class BadRow(ValueError):
    """A line that is not a row: `line` counts from 1."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Row:
    """`line` counts from 1. All of `evidence` must survive or, where there is none, any of `answers`."""

    line: int
    query: str
    text: str
    evidence: tuple[str, ...]
    answers: tuple[str, ...]

    def holds(self, result: CompressionResult) -> bool:
        return self.is_in(result.output)

    def is_in(self, text: str) -> bool:
        """True if `text` has what must survive. Texts inside JSON are looked at as they read, not as they are written;
        white space does not matter, nor do case, marks and English articles in answers."""
        return holds_all(text, self.evidence) if self.evidence else holds_any(text, self.answers)


def read_rows(lines: Iterable[str]) -> tuple[list[Row], list[BadRow]]:
    """Every row, and what is wrong with the malformed lines. Empty lines are skipped."""
    rows, bad = [], []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                rows.append(_row(number, line))
            except BadRow as error:
                bad.append(error)
    return rows, bad


def question_of(row: Row) -> Question:
    """Questions about one text are one group."""
    return Question("data", hashlib.sha256(row.text.encode()).hexdigest(), row.query, row.text, row.holds)


def holds_all(text: str, evidence: Sequence[str]) -> bool:
    ready = _spaced(text)
    return all(_spaced(piece) in ready for piece in evidence)


def holds_any(text: str, answers: Sequence[str]) -> bool:
    ready = _normal(text)
    return any((_normal(answer) in ready) if _normal(answer) else (answer in text) for answer in answers)


def _row(line: int, text: str) -> Row:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRow(line, f"is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise BadRow(line, "must be an object")
    unknown = sorted(set(data) - _MEMBERS)
    if unknown:
        raise BadRow(line, f"{unknown[0]}: unknown member; a row has {', '.join(sorted(_MEMBERS))}")
    if not isinstance(data.get("query"), str) or not data["query"].strip():
        raise BadRow(line, "query: must be a string that is not empty")
    source = _source(line, data)
    evidence, answers = _texts(line, data, "evidence"), _texts(line, data, "answers")
    if not evidence and not answers:
        raise BadRow(line, "must have evidence, all of which is to survive, or answers, one of which is")
    row = Row(line, data["query"], source, evidence, answers)
    if not row.is_in(source):
        raise BadRow(line, _missing(row))
    return row


def _source(line: int, data: dict[str, Any]) -> str:
    if ("input" in data) == ("messages" in data):
        raise BadRow(line, "must have either input or messages")
    if "input" in data:
        if not isinstance(data["input"], str) or not data["input"]:
            raise BadRow(line, "input: must be a string that is not empty")
        return str(data["input"])
    fault = fault_in(data["messages"])
    if fault is not None:
        raise BadRow(line, f"messages{fault}")
    # As the routes write what they compress.
    return json.dumps(data["messages"], ensure_ascii=False, separators=(",", ":"))


def _texts(line: int, data: dict[str, Any], name: str) -> tuple[str, ...]:
    found = data.get(name)
    if found is None:
        return ()
    if not isinstance(found, list) or not all(isinstance(one, str) and one.strip() for one in found):
        raise BadRow(line, f"{name}: must be a list of strings that are not empty")
    return tuple(found)


def _missing(row: Row) -> str:
    if not row.evidence:
        return "answers: none of them is in the input"
    lost = next(at for at, piece in enumerate(row.evidence) if not holds_all(row.text, [piece]))
    return f"evidence[{lost}]: is not in the input: {row.evidence[lost][:80]!r}"


def _spaced(text: str) -> str:
    return _SPACE.sub(" ", _read(text)).strip()


def normalise(text: str) -> str:
    """Lower case, without punctuation and articles, single spaces: as NaturalQuestions' scorers compare answers."""
    return " ".join(_ARTICLE.sub(" ", _NOT_WORD.sub("", text.lower())).split())


def _normal(text: str) -> str:
    return normalise(_read(text))


def _read(text: str) -> str:
    """The text, and after it the texts inside where it is JSON."""
    if text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        return "\n".join((text, *_leaves(json.loads(text), 0)))
    except (ValueError, RecursionError):
        return text


def _leaves(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif depth < _DEEPEST and isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _leaves(inner, depth + 1)
