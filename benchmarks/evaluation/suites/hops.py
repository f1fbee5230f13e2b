"""Questions whose evidence is in several documents: HotpotQA, 2WikiMultihopQA and MuSiQue."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.evaluation import datasets
from benchmarks.evaluation.case import Case, Need, Span, join, spans_of
from benchmarks.evaluation.metrics import holds_answer
from compression.tuning.row import normalise

YES_OR_NO = frozenset({"yes", "no"})


@dataclass(frozen=True, slots=True)
class Document:
    title: str
    text: str
    supports: bool


@dataclass(frozen=True, slots=True)
class HopRow:
    """A question, its documents in the file's order, and the texts all of which an output needs.

    The texts are sentences of the documents, or the answers of MuSiQue's hops.
    """

    question: str
    answers: tuple[str, ...]
    documents: tuple[Document, ...]
    needed: tuple[str, ...]


def sentence_row(row: dict[str, Any]) -> HopRow:
    """A row of HotpotQA or 2Wiki: documents are lists of sentences, some of which are needed."""
    needed = tuple(sentence.strip() for sentence in row["evidence"])
    documents = tuple(
        Document(document["title"], _text(document["sentences"]), _supports(document["sentences"], needed))
        for document in row["documents"]
    )
    return HopRow(row["question"], (row["answer"],), documents, needed)


def _text(sentences: Sequence[str]) -> str:
    return " ".join(filter(None, map(str.strip, sentences)))


def _supports(sentences: Sequence[str], needed: Sequence[str]) -> bool:
    return any(sentence.strip() in needed for sentence in sentences)


def answer_row(row: dict[str, Any]) -> HopRow:
    """A row of MuSiQue: each hop has an answer."""
    documents = tuple(
        Document(document["title"], document["text"], bool(document["supports"]))
        for document in row["documents"]
    )
    return HopRow(row["question"], tuple(row["answers"]), documents, tuple(row["hop_answers"]))


def is_asked(row: HopRow) -> bool:
    """Whether the answer is worth asking for: not yes or no, and not in the question."""
    return normalise(row.answers[0]) not in YES_OR_NO and not holds_answer(row.question, row.answers)


def cases(rows: Sequence[HopRow], suite: str, *, has_titles: bool) -> Iterator[Case]:
    """A title, its text below it, an empty line between documents; without titles the texts alone."""
    for number, row in enumerate(rows):
        parts = [
            f"{document.title}\n{document.text}" if has_titles else document.text
            for document in row.documents
        ]
        context, spans = join(parts, "\n\n")
        supporting = [span for span, document in zip(spans, row.documents, strict=True) if document.supports]
        needs = tuple(Need(text, places(context, text, supporting)) for text in row.needed)
        yield Case(
            suite, f"{suite}-{number}", row.question, context, spans, None, row.answers if is_asked(row) else (),
            spans_of(needs), datasets.is_held_out(row.question), needs,
        )  # fmt: skip


def places(context: str, text: str, within: Sequence[Span]) -> tuple[Span, ...]:
    """Where the text occurs in the documents that support the answer, or in any document where it is in none of
    these. Case, marks and white space between words do not matter."""
    words = re.findall(r"\w+", text)
    if not words:
        return ()
    pattern = re.compile(r"[\W_]+".join(map(re.escape, words)), re.IGNORECASE)
    found = [match.span() for match in pattern.finditer(context)]
    supported = [
        (start, end) for start, end in found if any(first <= start and end <= last for first, last in within)
    ]
    return tuple(supported or found)
