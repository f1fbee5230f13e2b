"""The training and validation cases, drawn from the data folder with a fixed seed."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.evaluation import datasets
from benchmarks.evaluation.case import Case, seeded
from benchmarks.evaluation.datasets import Paragraph, Passage
from benchmarks.evaluation.retrieval import HardPassages
from benchmarks.evaluation.suites import catalogue, plain
from benchmarks.training.rendering import SCRIPTS, Quiz, disguise, dressed

KEY_QUERIES = (
    "{key}",
    'What is the value of "{key}"?',
    'Extract the value corresponding to the specified key in the JSON object below. Key: "{key}"',
    "key {key}",
)


def passage_quizzes(rows: Sequence[Passage]) -> Iterator[Quiz]:
    """Each training question among passages of its kind: mostly the twenty hardest, sometimes fewer."""
    hard = HardPassages(rows)
    for number, row in enumerate(rows):
        if datasets.is_held_out(row.question):
            continue
        rng = seeded(f"train nq {row.question}")
        count = 19 if rng.random() < 0.8 else rng.randint(4, 30)
        passages = [row, *hard.beside(row, count)]
        rng.shuffle(passages)
        documents = tuple((passage.title, passage.text) for passage in passages)
        yield Quiz("nq", f"nq-{number}", row.question, row.answers, documents, passages.index(row), False)


def paragraph_quizzes(rows: Sequence[Paragraph], suite: str) -> Iterator[Quiz]:
    """Each training question twice: among the paragraphs next to its own, and among any others."""
    blocks = [range(start, min(start + 10, len(rows))) for start in range(0, len(rows), 10)]
    train = [block for block in blocks if not datasets.is_held_out(f"xquad block {block.start}")]
    free = [index for block in train for index in block]
    for block in train:
        for index in block:
            for at, (question, answer) in enumerate(rows[index].questions):
                rng = seeded(f"train xquad {index} {at}")
                beside = [other for other in block if other != index]
                others = rng.sample([other for other in free if other != index], rng.randint(5, 18))
                for kind, companions in (("beside", beside), ("apart", others)):
                    chosen = [index, *companions]
                    rng.shuffle(chosen)
                    documents = tuple(("", rows[other].text) for other in chosen)
                    name = f"{suite}-{index}-{at}-{kind}"
                    yield Quiz(suite, name, question, (answer,), documents, chosen.index(index), False)


def without_gold(quiz: Quiz) -> Quiz:
    """The same question where nothing answers it."""
    documents = tuple(pair for number, pair in enumerate(quiz.documents) if number != quiz.gold)
    return replace(quiz, suite=f"{quiz.suite}_none", documents=documents, gold=-1)


def training_cases(folder: Path) -> Iterator[Case]:
    """Every training question in some format; some again in another script, or without the passage that answers."""
    quizzes = list(passage_quizzes(datasets.read(folder / "nq_open_oracle.jsonl.gz", datasets.passage)))
    for path in sorted(folder.glob("xquad_*.jsonl.gz")):
        suite = path.name.removesuffix(".jsonl.gz")
        quizzes += paragraph_quizzes(datasets.read(path, datasets.paragraph), suite)
    for quiz in quizzes:
        rng = seeded(f"dress {quiz.name}")
        yield dressed(quiz, rng)
        draw = rng.random()
        if draw < 0.1:
            yield dressed(without_gold(quiz), rng)
        elif draw < 0.45 and quiz.suite in ("nq", "xquad_en", "xquad_de"):
            yield dressed(disguise(quiz, rng.choice(list(SCRIPTS))), rng)
    yield from plain.meeting_cases(
        datasets.read(folder / "qmsum_train.jsonl.gz", datasets.meeting), "qmsum_train", is_held_out=False
    )
    for case in plain.record_cases(datasets.read(folder / "kv_75.jsonl.gz", datasets.records), "kv_75"):
        if not case.is_held_out:
            rng = seeded(f"dress {case.name}")
            yield (
                replace(case, query=rng.choice(KEY_QUERIES).format(key=case.answers[0]))
                if rng.random() < 0.7
                else case
            )


def held_out_cases(folder: Path) -> Iterator[Case]:
    """What training never sees, as the quality benchmark builds it."""
    for cases in catalogue.load(folder).values():
        yield from (case for case in cases if case.is_held_out)
