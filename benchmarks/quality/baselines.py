"""Selectors to compare with: the head of the context, random sentences, and BM25 over sentences and over documents."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from benchmarks.quality.contexts import Case, seeded
from benchmarks.quality.metrics import tokens
from benchmarks.quality.retrieval import Bm25

Span = tuple[int, int]
Baseline = Callable[[Case, float], str]
# A mark and a space end a sentence; an ideographic mark needs no space.
SENTENCE = re.compile(
    r"[^\n]+?(?:[.!?][\"')\]\u201d\u2019]*(?=\s)|[\u3002\uff01\uff1f](?=.)|(?=\n|\Z))", re.DOTALL
)


def sentences(case: Case) -> list[Span]:
    """Sentences and lines; the members of JSON as they stand in the file."""
    if case.suite.startswith("kv"):
        return list(case.documents)
    found = [(start, end) for start, end in (match.span() for match in SENTENCE.finditer(case.context))]
    return [(start, end) for start, end in found if case.context[start:end].strip()]


def take(case: Case, spans: Sequence[Span], order: Sequence[int], ratio: float) -> str:
    """Spans in the order given, as many as fit the budget of word tokens, put back in source order."""
    left = int(len(tokens(case.context)) * ratio)
    kept = []
    for index in order:
        size = len(tokens(case.context[slice(*spans[index])]))
        if size <= left:
            kept.append(index)
            left -= size
    pieces = [case.context[slice(*spans[index])].strip() for index in sorted(kept)]
    return "{" + ", ".join(pieces) + "}" if case.suite.startswith("kv") else "\n".join(pieces)


def head(case: Case, ratio: float) -> str:
    spans = sentences(case)
    return take(case, spans, range(len(spans)), ratio)


def random_sentences(case: Case, ratio: float) -> str:
    spans = sentences(case)
    order = list(range(len(spans)))
    seeded(f"random {case.name}").shuffle(order)
    return take(case, spans, order, ratio)


def bm25_sentences(case: Case, ratio: float) -> str:
    spans = sentences(case)
    order = Bm25([case.context[start:end] for start, end in spans]).ranking(case.query)
    return take(case, spans, order, ratio)


def bm25_documents(case: Case, ratio: float) -> str:
    """The sentences of the best document in their order, then those of the next."""
    spans = sentences(case)
    best = Bm25([case.context[start:end] for start, end in case.documents]).ranking(case.query)
    place = {document: rank for rank, document in enumerate(best)}
    owner, document = [], 0
    for start, _ in spans:
        while document + 1 < len(case.documents) and start >= case.documents[document][1]:
            document += 1
        owner.append(document)
    return take(case, spans, sorted(range(len(spans)), key=lambda index: (place[owner[index]], index)), ratio)


BASELINES: dict[str, Baseline] = {
    "head": head,
    "random": random_sentences,
    "BM25 sentences": bm25_sentences,
    "BM25 documents": bm25_documents,
}
