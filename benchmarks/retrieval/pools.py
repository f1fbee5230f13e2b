"""Questions whose passages are known, each with the passages that it is to be answered from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.evaluation import datasets
from benchmarks.evaluation.retrieval import HardPassages
from benchmarks.evaluation.suites import hops

HOPS = {
    "HotpotQA": ("hotpot_dev", hops.sentence_row),
    "2Wiki": ("wiki2_train", hops.sentence_row),
    "MuSiQue": ("musique_dev", hops.answer_row),
}
BESIDE = 19


@dataclass(frozen=True, slots=True)
class Question:
    """`wanted` are indices into the passages of its pool; none of its row was trained on."""

    text: str
    wanted: frozenset[int]


@dataclass(frozen=True, slots=True)
class Pool:
    """Passages and the questions that are asked of all of them."""

    passages: tuple[str, ...]
    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True)
class Suite:
    """`is_large`: a reranker orders the first passages of a search, not all."""

    name: str
    pools: tuple[Pool, ...]
    is_large: bool

    @property
    def questions(self) -> int:
        return sum(len(pool.questions) for pool in self.pools)


def suites(folder: Path) -> Iterator[Suite]:
    """Raises `FileNotFoundError` where a file is missing."""
    rows = datasets.read(folder / "nq_open_oracle.jsonl.gz", datasets.passage)
    asked = [row for row in rows if datasets.is_held_out(row.question)]
    hard = HardPassages(rows)
    yield Suite("NQ, 20 hard passages", tuple(_own(row, hard) for row in asked), is_large=False)
    found: list[tuple[str, Sequence[str], frozenset[int]]] = []
    for name, (stem, parse) in HOPS.items():
        of_file = datasets.read(folder / f"{stem}.jsonl.gz", parse)
        found += [hop for row in of_file if (hop := _hop(row))[2]]
        aside = [row for row in of_file if datasets.is_held_out(row.question) and _hop(row)[2]]
        yield Suite(f"{name}, its own passages", tuple(_of_row(row) for row in aside), is_large=False)
    everything = [(row.question, [_passage(row)], frozenset({0})) for row in rows]
    yield Suite("NQ, all passages", (_together(everything),), is_large=True)
    yield Suite("HotpotQA, 2Wiki and MuSiQue, all passages", (_together(found),), is_large=True)


def _passage(row: datasets.Passage) -> str:
    return f"{row.title}\n{row.text}"


def _own(row: datasets.Passage, hard: HardPassages) -> Pool:
    """The passage that answers is the first: no method is told, and equal scores are ordered at random."""
    texts = [_passage(row), *map(_passage, hard.beside(row, BESIDE))]
    return Pool(tuple(texts), (Question(row.question, frozenset({0})),))


def _hop(row: hops.HopRow) -> tuple[str, Sequence[str], frozenset[int]]:
    texts = [f"{document.title}\n{document.text}" for document in row.documents]
    return row.question, texts, frozenset(at for at, found in enumerate(row.documents) if found.supports)


def _of_row(row: hops.HopRow) -> Pool:
    question, texts, wanted = _hop(row)
    return Pool(tuple(texts), (Question(question, wanted),))


def _together(rows: Sequence[tuple[str, Sequence[str], frozenset[int]]]) -> Pool:
    """All passages of all rows, each once; only held-out rows ask."""
    numbers: dict[str, int] = {}
    questions = []
    for question, texts, wanted in rows:
        for text in texts:
            numbers.setdefault(text, len(numbers))
        if datasets.is_held_out(question):
            questions.append(Question(question, frozenset(numbers[texts[at]] for at in wanted)))
    return Pool(tuple(numbers), tuple(questions))
