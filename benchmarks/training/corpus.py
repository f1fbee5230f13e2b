"""The training part of the data as single sentences: what the token embeddings are tuned on."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.evaluation import datasets
from benchmarks.evaluation.case import seeded
from compression.segmentation import segment

MEETING_SHARE = 0.025
LONGEST = 400


def sentences(text: str) -> list[str]:
    return [sentence[:LONGEST] for sentence in segment(text).texts()]


@dataclass(frozen=True, slots=True)
class Text:
    """A sentence, and which half of the training rows it is from."""

    half: int
    text: str


def half_of(name: str) -> int:
    """The half of a training case, by the row in its name: 0 or 1. Questions to the same text are in the same half."""
    suite, number, *_ = name.split("-")
    row = int(number)
    return (row // 10 if suite.startswith("xquad") else row) % 2


def corpus(folder: Path) -> list[Text]:
    """Questions, sentences with and without their titles, and some turns of meetings; no held-out row is in it."""
    found: list[Text] = []

    def add(name: str, texts: Iterable[str]) -> None:
        found.extend(Text(half_of(name), text[:LONGEST]) for text in texts if text.strip())

    for number, row in enumerate(datasets.read(folder / "nq_open_oracle.jsonl.gz", datasets.passage)):
        if not datasets.is_held_out(row.question):
            rng = seeded(f"corpus {row.question}")
            pieces = [
                f"{row.title}: {piece}" if rng.random() < 0.4 else piece for piece in sentences(row.text)
            ]
            add(f"nq-{number}", [row.question, *pieces])
    for number, paragraph in enumerate(datasets.read(folder / "xquad_en.jsonl.gz", datasets.paragraph)):
        if not datasets.is_held_out(f"xquad block {number // 10 * 10}"):
            add(f"xquad_en-{number}", sentences(paragraph.text))
            add(f"xquad_en-{number}", (question for question, _ in paragraph.questions))
    rng = seeded("corpus meetings")
    for number, meeting in enumerate(datasets.read(folder / "qmsum_train.jsonl.gz", datasets.meeting)):
        add(f"qmsum_train-{number}", (query.query for query in meeting.queries))
        add(
            f"qmsum_train-{number}", (content for _, content in meeting.turns if rng.random() < MEETING_SHARE)
        )
    return list(dict.fromkeys(found))
