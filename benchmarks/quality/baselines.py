"""Selectors to compare with: what is easy to write, and for each kind of context the ten lines that suit it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.evaluation.case import Case, Span, seeded
from benchmarks.evaluation.retrieval import Bm25, words
from benchmarks.evaluation.suites.families import name_of_family
from benchmarks.evaluation.suites.pages import text_of
from benchmarks.quality.selecting import owners, sentences, take

Select = Callable[[Case, float], str]
HOPS = frozenset({"hotpot", "wiki2", "musique"})
SENTENCES_NEEDED = frozenset({"hotpot", "wiki2", "dialogues"})
# What an agent repeats: a word with a digit or an underscore in it.
IDENTIFIER = re.compile(r"(?=[\w-]*[\d_])[\w-]{4,}")
MEMBER = re.compile(r'"[^"\\\n]*"\s*:\s*(?:"(?:[^"\\]|\\.)*"|[^\s{}\[\]",]+)')
# Of a record's beginning, in characters: what it is called by.
HEAD = 120
PIECE = re.compile(r"[^\n]{1,160}?(?:[}\]]*, |\n|\Z)|[^\n]{160}|[^\n]+")
PARAGRAPH = re.compile(r"<(p|li|h1)\b[^<>]*>(?:(?!</?\1\b).)*+(?:</\1>)?", re.DOTALL | re.IGNORECASE)
FUNCTION = re.compile(r"(?m)^[ \t]*(?:async )?(?:def|class) (?P<name>\w+)")
CALL = re.compile(r", in (\w+)")
# What a result is told by, in the papers that we have seen.
RESULT = re.compile(
    r"[Pp]\s?[<=>]\s?0?\.\d|95% ?CI|±|\d ?%|\d\.\d|significant|differen|higher|lower|increas|decreas|reduc|improv"
)
LEVELS = (
    re.compile(r"\b(?:fatal|critical|panic|emerg)", re.IGNORECASE),
    re.compile(r"\b(?:error|fail|exception)", re.IGNORECASE),
    re.compile(r"\bwarn", re.IGNORECASE),
)


@dataclass(frozen=True, slots=True)
class Baseline:
    """A selector, and the families that it is for; None for all."""

    select: Select
    families: frozenset[str] | None = None

    def suits(self, case: Case) -> bool:
        return self.families is None or name_of_family(case.suite) in self.families


def head(case: Case, ratio: float) -> str:
    spans = sentences(case)
    return take(case, spans, range(len(spans)), ratio)


def tail(case: Case, ratio: float) -> str:
    spans = sentences(case)
    return take(case, spans, range(len(spans) - 1, -1, -1), ratio)


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
    owner = owners(case, spans)
    return take(case, spans, sorted(range(len(spans)), key=lambda index: (place[owner[index]], index)), ratio)


def follow_titles(case: Case, ratio: float) -> str:
    """Documents whose title the question has, then those whose title these have, and one step more.

    Within a step come sentences that share words with the question, and the first of a document. It needs titles.
    """
    texts = [case.context[start:end] for start, end in case.documents]
    titles = [re.sub(r"\s*\(.*?\)", "", text.split("\n")[0]).lower() for text in texts]
    step = _steps(case.query, titles, texts)
    spans = sentences(case)
    owner = owners(case, spans)
    asked = set(words(case.query))

    def key(index: int) -> tuple[int, float]:
        is_title = spans[index][0] == case.documents[owner[index]][0]
        is_first = index > 0 and spans[index - 1][0] == case.documents[owner[index]][0]
        shared = len(asked.intersection(words(case.context[slice(*spans[index])])))
        # A title by itself says nothing.
        return step[owner[index]] + 10 * is_title, -(shared + 2 * is_first)

    return take(case, spans, sorted(range(len(spans)), key=key), ratio)


def _steps(query: str, titles: list[str], texts: list[str]) -> list[int]:
    step = [0 if title in query.lower() else 3 for title in titles]
    for reached in (0, 1):
        near = " ".join(text for text, at in zip(texts, step, strict=True) if at == reached).lower()
        step = [min(at, reached + 1) if title in near else at for at, title in zip(step, titles, strict=True)]
    return step


def new_identifiers(case: Case, ratio: float) -> str:
    """Pieces by the identifiers a character that no later piece has, later ones first among equals."""
    spans = [match.span() for match in PIECE.finditer(case.context) if match.group().strip()]
    seen: set[str] = set()
    worth: dict[int, float] = {}
    for index in range(len(spans) - 1, -1, -1):
        piece = case.context[slice(*spans[index])]
        found = set(IDENTIFIER.findall(piece))
        worth[index] = len(found - seen) / len(piece)
        seen |= found
    return take(case, spans, sorted(worth, key=lambda index: (-worth[index], -index)), ratio)


def result_words(case: Case, ratio: float) -> str:
    """BM25 by sentence, twice as much for one that has what results are told by, and more for each further one."""
    spans = sentences(case)
    texts = [case.context[start:end] for start, end in spans]
    scores = Bm25(texts).scores(case.query)
    worth = [
        score * (1 + min(3, len(RESULT.findall(text)))) for score, text in zip(scores, texts, strict=True)
    ]
    return take(case, spans, sorted(range(len(spans)), key=lambda index: -worth[index]), ratio)


def level_order(case: Case, ratio: float) -> str:
    """Lines by how bad their level is, in the order of the log."""

    def badness(span: Span) -> int:
        line = case.context[slice(*span)]
        return next((rank for rank, level in enumerate(LEVELS) if level.search(line)), len(LEVELS))

    order = sorted(range(len(case.documents)), key=lambda index: badness(case.documents[index]))
    return take(case, case.documents, order, ratio)


def long_paragraphs(case: Case, ratio: float) -> str:
    """Paragraphs, items and the heading of a page by the length of their text."""
    spans = [match.span() for match in PARAGRAPH.finditer(case.context)]
    order = sorted(range(len(spans)), key=lambda index: -len(text_of(case.context[slice(*spans[index])])))
    return take(case, spans, order, ratio)


def head_and_leaf(case: Case, ratio: float) -> str:
    """Members of JSON by BM25, each read with the beginning of its record: what the array's elements begin with."""
    text, decoder = case.context, json.JSONDecoder()
    spans: list[Span] = []
    joined: list[str] = []
    at = max(0, text.find("["))
    while (start := text.find("{", at)) >= 0:
        try:
            at = decoder.raw_decode(text, start)[1]
        except ValueError:
            break
        for member in MEMBER.finditer(text, start, at):
            spans.append(member.span())
            joined.append(f"{text[start : start + HEAD]} {member.group()}".replace("_", " "))
    return take(case, spans, Bm25(joined).ranking(case.query.replace("_", " ")), ratio)


def header_and_neighbours(case: Case, ratio: float) -> str:
    """The first line, then lines by BM25 with half of what the lines beside them have; the first and last on ties."""
    spans = sentences(case)
    scores = Bm25([case.context[start:end] for start, end in spans]).scores(case.query)
    near = [
        score + max([scores[at] / 2 for at in (index - 1, index + 1) if 0 <= at < len(scores)], default=0.0)
        for index, score in enumerate(scores)
    ]
    ends = {index: min(index, len(spans) - 1 - index) for index in range(len(spans))}
    order = sorted(range(len(spans)), key=lambda index: (index != 0, -near[index], ends[index]))
    return take(case, spans, order, ratio)


def functions_by_bm25(case: Case, ratio: float) -> str:
    """Functions of Python by BM25, identifiers split at underscores."""
    spans = _functions(case.context)
    order = Bm25([case.context[slice(*span)].replace("_", " ") for span in spans]).ranking(case.query)
    return take(case, spans, order, ratio)


def named_functions(case: Case, ratio: float) -> str:
    """Functions of Python whose name stands in the question, the last of a traceback's first; then by BM25."""
    spans = _functions(case.context)
    place = {name: at for at, name in enumerate(CALL.findall(case.query))}
    heads = [FUNCTION.match(case.context[slice(*span)]) for span in spans]
    rank = [place.get(head["name"] if head else "", -1) for head in heads]
    return take(case, spans, sorted(range(len(spans)), key=lambda at: -rank[at]), ratio)


def _functions(text: str) -> list[Span]:
    starts = sorted({0, *(found.start() for found in FUNCTION.finditer(text))})
    return [(start, end) for start, end in zip(starts, [*starts[1:], len(text)], strict=True) if end > start]


def errors_around(case: Case, ratio: float) -> str:
    """Lines that say that something failed, then three lines on both sides; what was there before comes last."""
    lines = [re.sub(r"\d+", "0", case.context[slice(*span)]) for span in case.documents]
    hits = [at for at, line in enumerate(lines) if LEVELS[1].search(line)]
    distance = {at + step: abs(step) for step in (3, -3, 2, -2, 1, -1, 0) for at in hits}
    first = {line: at for at, line in reversed(list(enumerate(lines)))}
    order = sorted(
        range(len(lines)), key=lambda at: (first[lines[at]] != at, distance.get(at, len(lines)), at)
    )
    return take(case, case.documents, order, ratio)


def evidence_first(case: Case, ratio: float) -> str:
    """The ceiling by size: nothing but the needed sentences, where they fit."""
    spans = sorted({min(need.spans, key=lambda span: span[1] - span[0]) for need in case.needs})
    return take(case, spans, range(len(spans)), ratio)


BASELINES: dict[str, Baseline] = {
    "head": Baseline(head),
    "tail": Baseline(tail),
    "random": Baseline(random_sentences),
    "BM25 sentences": Baseline(bm25_sentences),
    "BM25 documents": Baseline(bm25_documents),
    "follow titles": Baseline(follow_titles, HOPS),
    "head and leaf": Baseline(head_and_leaf, frozenset({"webhooks"})),
    "header and neighbours": Baseline(header_and_neighbours, frozenset({"tables", "filings"})),
    "new identifiers": Baseline(new_identifiers, frozenset({"tau", "agents", "coding"})),
    "result words": Baseline(result_words, frozenset({"findings"})),
    "level order": Baseline(level_order, frozenset({"logs"})),
    "long paragraphs": Baseline(long_paragraphs, frozenset({"pages", "page"})),
    "functions by BM25": Baseline(functions_by_bm25, frozenset({"code"})),
    "functions named": Baseline(named_functions, frozenset({"tracebacks"})),
    "errors and three lines": Baseline(errors_around, frozenset({"ci"})),
    "ceiling by size": Baseline(evidence_first, SENTENCES_NEEDED),
}


def suited(case: Case) -> Iterator[tuple[str, Select]]:
    """The baselines that say something about a case."""
    for name, baseline in BASELINES.items():
        if baseline.suits(case) and not (name == "follow titles" and case.suite.endswith("_bare")):
            yield name, baseline.select
