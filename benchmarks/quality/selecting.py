"""The selection that baselines share: pieces of a context, as many as fit the budget of word tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence

from benchmarks.evaluation.case import Case, Span
from benchmarks.evaluation.metrics import tokens

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


def owners(case: Case, spans: Sequence[Span]) -> list[int]:
    """The document that each span is in; spans and documents stand in source order."""
    found, document = [], 0
    for start, _ in spans:
        while document + 1 < len(case.documents) and start >= case.documents[document][1]:
            document += 1
        found.append(document)
    return found
