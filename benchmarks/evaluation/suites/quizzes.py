"""A question, the passage that answers it, and passages that do not: what the made suites write into one text."""

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.evaluation import datasets
from benchmarks.evaluation.case import seeded
from benchmarks.evaluation.datasets import Passage
from benchmarks.evaluation.metrics import holds_answer
from benchmarks.evaluation.retrieval import HardPassages

QUESTIONS = 300
HARD = 12
SENTENCE = re.compile(r"\S.*?(?:[.!?][\"')\]]*(?=\s+[A-Z0-9\"'(\[])|$)", re.DOTALL)


@dataclass(frozen=True)
class Quiz:
    """The passages in the order of the text to be written; `sentence` of `gold` holds the answer."""

    number: int
    gold: Passage
    passages: tuple[Passage, ...]
    sentence: str
    rng: random.Random
    is_held_out: bool


def sentences(text: str) -> list[str]:
    """The text's sentences, each on a line of its own."""
    return [" ".join(match.group().split()) for match in SENTENCE.finditer(text.strip())]


def evidence_of(row: Passage) -> str:
    """The first sentence that holds an answer; empty where none does by itself."""
    return next((sentence for sentence in sentences(row.text) if holds_answer(sentence, row.answers)), "")


def quizzes(rows: Sequence[Passage], suite: str, passages: int) -> Iterator[Quiz]:
    """A sample of the questions, each with that many passages: some hard ones by BM25, the rest any."""
    hard = HardPassages(rows)
    picked = seeded(f"{suite} questions").sample(range(len(rows)), min(QUESTIONS, len(rows)))
    for number in sorted(picked):
        gold = rows[number]
        if not (sentence := evidence_of(gold)):
            continue
        rng = seeded(f"{suite} {gold.question}")
        near = hard.beside(gold, min(HARD, passages - 1))
        chosen = [gold, *near, *_any(rows, gold, near, passages - 1 - len(near), rng)]
        rng.shuffle(chosen)
        yield Quiz(number, gold, tuple(chosen), sentence, rng, datasets.is_held_out(gold.question))


def _any(
    rows: Sequence[Passage], gold: Passage, near: Sequence[Passage], count: int, rng: random.Random
) -> list[Passage]:
    seen = {gold.text, *(passage.text for passage in near)}
    found: list[Passage] = []
    for row in rng.sample(list(rows), len(rows)):
        if len(found) >= count:
            break
        if row.text not in seen and not holds_answer(f"{row.title} {row.text}", gold.answers):
            seen.add(row.text)
            found.append(row)
    return found
