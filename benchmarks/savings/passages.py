"""One question over twenty passages, as one message of text parts: the passages marked, the question last."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.evaluation.case import Case, seeded
from benchmarks.evaluation.suites import catalogue
from benchmarks.savings.conversation import Message

# Of the marked parts: all passages in one, or each in one of its own.
SHAPES = ("one part", "a part each")


def cases(data: Path, shape: str, how_many: int) -> list[Case]:
    """Questions that nothing was trained on, drawn with a fixed seed; others for each shape, so that the engine has
    none of their passages in its cache."""
    held_out = [case for case in catalogue.load(data, ["nq"])["nq"] if case.is_held_out]
    seeded("savings").shuffle(held_out)
    return held_out[SHAPES.index(shape) :: len(SHAPES)][:how_many]


def messages(case: Case, shape: str, *, marked: bool) -> list[Message]:
    """Without a mark nothing of a user's message is compressed."""
    mark = {"compress": True} if marked else {}
    parts: list[dict[str, Any]] = [{"type": "text", "text": text, **mark} for text in texts_of(case, shape)]
    return [{"role": "user", "content": [*parts, {"type": "text", "text": case.query}]}]


def texts_of(case: Case, shape: str) -> Sequence[str]:
    """The parts before the question."""
    if shape == SHAPES[0]:
        return [case.context]
    return [case.context[start:end] for start, end in case.documents]
