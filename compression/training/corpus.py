"""The training part of the data as single sentences: what the token embeddings are tuned on."""

from __future__ import annotations

from pathlib import Path

from benchmarks.quality import data
from benchmarks.quality.contexts import seeded
from compression.segmentation import segment

MEETING_SHARE = 0.025
LONGEST = 400


def sentences(text: str) -> list[str]:
    found = segment(text)
    return [found.text(number)[:LONGEST] for number in range(len(found.units))]


def corpus(folder: Path) -> list[str]:
    """Questions, sentences with and without their titles, and some turns of meetings; no held-out row is in it."""
    found: list[str] = []
    for row in data.read(folder / "nq_open_oracle.jsonl.gz", data.passage):
        if data.is_held_out(row.question):
            continue
        found.append(row.question)
        pieces = sentences(row.text)
        rng = seeded(f"corpus {row.question}")
        found += [f"{row.title}: {piece}" if rng.random() < 0.4 else piece for piece in pieces]
    for number, paragraph in enumerate(data.read(folder / "xquad_en.jsonl.gz", data.paragraph)):
        if not data.is_held_out(f"xquad block {number // 10 * 10}"):
            found += [*sentences(paragraph.text), *(question for question, _ in paragraph.questions)]
    rng = seeded("corpus meetings")
    for meeting in data.read(folder / "qmsum_train.jsonl.gz", data.meeting):
        found += [query.query for query in meeting.queries]
        found += [content[:LONGEST] for _, content in meeting.turns if rng.random() < MEETING_SHARE]
    return list(dict.fromkeys(piece for piece in found if piece.strip()))
