"""Cases as arrays: the features of every unit, which units hold the answer, and how the units are grouped."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.evaluation.case import Case
from benchmarks.evaluation.metrics import holds_answer
from benchmarks.training import parallel
from compression.features.matrix import Context, extract, prepare
from compression.features.meaning import TokenEmbeddings
from compression.segmentation import segment
from compression.source.text import IDEOGRAPHS
from compression.source.units import Segmentation

# Tokens for training and its own validation: words, single ideographs, and marks.
TOKEN = re.compile(f"[{IDEOGRAPHS}]|[^\\W{IDEOGRAPHS}]+|[^\\w\\s]")


@dataclass(frozen=True)
class Example:
    """`wanted` marks the units to find; `holds` those that hold an answer, if only by chance."""

    suite: str
    name: str
    is_held_out: bool
    features: NDArray[np.float16]
    wanted: NDArray[np.bool_]
    holds: NDArray[np.bool_]
    tokens: NDArray[np.float32]
    documents: NDArray[np.int32]
    paragraphs: NDArray[np.int32]


def label(case: Case, text: Segmentation) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    starts = np.array([unit.start for unit in text.units])
    ends = np.array([unit.end for unit in text.units])
    if case.evidence:
        wanted = np.zeros(len(starts), bool)
        for start, end in case.evidence:
            wanted |= (starts < end) & (ends > start)
        return wanted, wanted
    holds = np.array([holds_answer(text.text(number), case.answers) for number in range(len(starts))], bool)
    if case.gold is None:
        return np.zeros(len(starts), bool), holds
    return holds & (starts < case.gold[1]) & (ends > case.gold[0]), holds


@lru_cache(maxsize=1)
def _prepared(source: str, embeddings: TokenEmbeddings) -> tuple[Context, NDArray[np.float32]]:
    """Questions about one meeting come in a row, so it is prepared once."""
    context = prepare(segment(source), embeddings)
    return context, np.array([len(TOKEN.findall(piece)) for piece in context.texts], np.float32)


def make(case: Case, embeddings: TokenEmbeddings) -> Example:
    context, tokens = _prepared(case.context, embeddings)
    wanted, holds = label(case, context.segmentation)
    layout = context.layout
    return Example(
        case.suite,
        case.name,
        case.is_held_out,
        extract(case.query, context, embeddings)[1].astype(np.float16),
        wanted,
        holds,
        tokens,
        layout.documents.of.astype(np.int32),
        layout.paragraphs.of.astype(np.int32),
    )


def make_all(cases: Iterable[Case], embeddings: TokenEmbeddings, workers: int) -> list[Example]:
    """All examples, in the order of the cases, computed in `workers` processes."""
    return parallel.make_all(partial(make, embeddings=embeddings), cases, workers)
