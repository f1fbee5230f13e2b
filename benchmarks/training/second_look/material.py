"""Material that the second look is trained on: questions of one and many hops, dialogues, papers, meetings, traces."""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.evaluation import datasets
from benchmarks.evaluation.case import Case, Need, join, seeded, spans_of
from benchmarks.evaluation.suites import hops, plain, traces
from benchmarks.evaluation.suites.hops import Document, HopRow
from benchmarks.evaluation.suites.logs import log_cases
from benchmarks.evaluation.suites.traces import Moment, Trace
from benchmarks.training import quizzes
from benchmarks.training.rendering import DRESSES, SCRIPTS, Quiz, cover_of, disguise, dressed
from benchmarks.training.second_look import updates
from benchmarks.training.second_look.dialogues import dialogue, paper
from benchmarks.training.second_look.exchanges import chat, ticket
from benchmarks.training.second_look.samples import Sample

HOP_FILES: tuple[tuple[str, Callable[..., HopRow], int], ...] = (
    ("hotpot_dev", hops.sentence_row, 6),
    ("wiki2_train", hops.sentence_row, 3),
    ("musique_dev", hops.answer_row, 6),
)
DISGUISED = 0.15
MADE = frozenset({"dialogue", "paper", "chat", "ticket"})
SHORTEST_TRACE = 2500  # characters of JSON
MOMENTS = 8
LOGS = 400


def row_name(name: str) -> str:
    """The row that a case was made from, as `suite-number…`."""
    made, _, rest = name.partition("-")
    return rest if made in MADE else name


def training_cases(folder: Path) -> Iterator[Case]:
    """Cases of rows that are not held out. Raises `FileNotFoundError` where a file is missing."""
    for quiz in quizzes.passage_quizzes(datasets.read(folder / "nq_open_oracle.jsonl.gz", datasets.passage)):
        yield from _of_passages(quiz)
    for path in sorted(folder.glob("xquad_*.jsonl.gz")):
        for quiz in quizzes.paragraph_quizzes(
            datasets.read(path, datasets.paragraph), path.name.removesuffix(".jsonl.gz")
        ):
            yield from _of_paragraphs(quiz)
    yield from _meetings(folder)
    yield from _records(folder)
    for stem, parse, variants in HOP_FILES:
        yield from _hops(datasets.read(folder / f"{stem}.jsonl.gz", parse), stem.split("_")[0], variants)
    yield from updates.cases()
    yield from log_cases("second look", LOGS, held_out=False)
    yield from trace_cases(datasets.read(folder / "tau_airline_dev.jsonl.gz", traces.trace))


def _of_passages(quiz: Quiz) -> Iterator[Case]:
    rng = seeded(f"second {quiz.name}")
    draw = rng.random()
    if draw < 0.9:
        yield dressed(quiz, rng)
    if draw < 0.15:
        yield dressed(disguise(quiz, rng.choice(list(SCRIPTS))), rng)
    if draw < 0.06:
        yield dressed(quizzes.without_gold(quiz), rng)
    if 0.2 < draw < 0.5:
        yield dialogue(quiz)
    if 0.5 < draw < 0.65:
        yield paper(quiz)
    if 0.6 < draw < 0.8:
        yield chat(quiz)
    if draw > 0.8:
        yield ticket(quiz)


def _of_paragraphs(quiz: Quiz) -> Iterator[Case]:
    rng = seeded(f"second {quiz.name}")
    draw = rng.random()
    if draw < 0.3:
        yield dressed(quiz, rng)
    elif draw < 0.36 and not quiz.suite.endswith("zh"):
        yield dressed(disguise(quiz, rng.choice(list(SCRIPTS))), rng)
    elif draw < 0.42:
        yield dialogue(quiz)
    elif draw < 0.48:
        yield chat(quiz)


def _meetings(folder: Path) -> Iterator[Case]:
    meetings = datasets.read(folder / "qmsum_train.jsonl.gz", datasets.meeting)
    for case in plain.meeting_cases(meetings, "qmsum_train", is_held_out=False):
        if seeded(f"second {case.name}").random() < 0.5:
            yield case


def _records(folder: Path) -> Iterator[Case]:
    for case in plain.record_cases(datasets.read(folder / "kv_75.jsonl.gz", datasets.records), "kv_75"):
        if not case.is_held_out:
            rng = seeded(f"dress {case.name}")
            yield replace(case, query=rng.choice(quizzes.KEY_QUERIES).format(key=case.answers[0]))


def _hops(rows: Sequence[HopRow], suite: str, variants: int) -> Iterator[Case]:
    """Each training question several times: its documents in another order and dress, some in another script."""
    for number, row in enumerate(rows):
        for variant in range(0 if datasets.is_held_out(row.question) else variants):
            yield _hop(row, f"{suite}-{number}-{variant}", suite)


def _hop(row: HopRow, name: str, suite: str) -> Case:
    rng = seeded(f"hop {name}")
    documents = rng.sample(row.documents, len(row.documents))
    cover = cover_of(rng.choice(list(SCRIPTS))) if rng.random() < DISGUISED else str
    context, spans = _written(documents, rng, cover)
    supporting = [span for span, document in zip(spans, documents, strict=True) if document.supports]
    needs = tuple(Need(text, hops.places(context, cover(text), supporting)) for text in row.needed)
    return Case(suite, name, cover(row.question), context, spans, None, (), spans_of(needs), False, needs)


def _written(
    documents: Sequence[Document], rng: random.Random, cover: Callable[[str], str]
) -> tuple[str, tuple[tuple[int, int], ...]]:
    dress = rng.choice(DRESSES)
    parts = [dress(number, cover(each.title), cover(each.text)) for number, each in enumerate(documents, 1)]
    return join(parts, "\n\n")


def trace_cases(rows: Sequence[Trace]) -> Iterator[Case]:
    """Some moments of every training trace, each as JSON and as text."""
    for number, each in enumerate(rows):
        if datasets.is_held_out(f"trace {each.task}"):
            continue
        found = list(traces.moments(each, longer_than=SHORTEST_TRACE))
        seeded(f"trace {number}").shuffle(found)
        for at, moment in enumerate(found[:MOMENTS]):
            yield from _dresses(moment, each.task, f"{number}-{at}")


def _dresses(moment: Moment, task: str, name: str) -> Iterator[Case]:
    yield _anywhere(traces.case_of(moment, task, "trace_json", f"trace-{name}-json", is_json=True))
    yield _anywhere(traces.case_of(moment, task, "trace_text", f"trace-{name}-text", is_json=False))


def _anywhere(case: Case) -> Case:
    """The case with every place of its values, in calls and in what was said, too: any of them will do."""
    whole = ((0, len(case.context)),)
    needs = tuple(Need(need.text, traces.places(case.context, need.text, whole)) for need in case.needs)
    return replace(case, needs=needs, evidence=spans_of(needs))


def counts(samples: Sequence[Sample]) -> dict[str, int]:
    """Samples by the first part of their suites' names."""
    return dict(sorted(Counter(sample.suite.split("_")[0] for sample in samples).items()))
