"""Cases as arrays for the second look: features, the first look's logits, and what must survive."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.evaluation.case import Case, Span
from benchmarks.training import parallel
from benchmarks.training.examples import TOKEN, label
from compression.features.layout import Floats, Ints
from compression.scorers.lexical import LexicalScorer
from compression.second_look.rounds import Inputs, read_inputs
from compression.segmentation import segment
from compression.source.units import FRAMING, Segmentation

MOST_GROUPS = 60


@dataclass
class Sample:
    """One case. Of each of `groups`, units by number, one must survive; `features` grows with every round."""

    suite: str
    name: str
    seen: Inputs
    features: NDArray[np.float16]
    first_features: int
    logits: Floats
    groups: list[Ints]
    tokens: Floats
    documents: NDArray[np.int32]
    paragraphs: NDArray[np.int32]


def units_in(text: Segmentation, spans: Sequence[Span]) -> Ints:
    """The units that any of the spans, in offsets of the input, touches."""
    starts, ends = _raw_bounds(text)
    touched = np.zeros(len(starts), bool)
    for start, end in spans:
        touched |= (starts < end) & (ends > start)
    return np.flatnonzero(touched & _content(text))


def _raw_bounds(text: Segmentation) -> tuple[Ints, Ints]:
    """Where units start and end in the input, which is not what they are cut from where messages are decoded."""
    spans = [text.raw_span(unit.start, unit.end) for unit in text.units]
    return np.array([start for start, _ in spans], np.int64), np.array([end for _, end in spans], np.int64)


def _content(text: Segmentation) -> NDArray[np.bool_]:
    return np.array([unit.kind not in FRAMING for unit in text.units], bool)


def groups_of(case: Case, text: Segmentation) -> list[Ints]:
    if case.needs:
        groups = [units_in(text, need.spans) for need in case.needs]
    elif case.evidence:
        groups = [np.array([unit]) for unit in units_in(text, case.evidence)][:MOST_GROUPS]
    else:
        groups = [np.flatnonzero(label(case, text)[0])]
    return [group for group in groups if len(group)]


def make(case: Case, scorer: LexicalScorer) -> Sample | None:
    """None where the context has no unit."""
    text = segment(case.context)
    if not text.units:
        return None
    glance = scorer.glance(case.query, text)
    seen = read_inputs(case.query, glance.context, (glance.names, glance.features), scorer.embeddings)
    layout = glance.context.layout
    return Sample(
        case.suite,
        case.name,
        replace(seen, tables=()),
        seen.still.astype(np.float16),
        len(glance.names),
        np.where(glance.muted, glance.logits.min(), glance.logits),
        groups_of(case, text),
        np.array([len(TOKEN.findall(piece)) for piece in glance.context.texts], np.float32),
        layout.documents.of.astype(np.int32),
        layout.paragraphs.of.astype(np.int32),
    )


def make_all(cases: Iterable[Case], scorer: LexicalScorer, workers: int) -> list[Sample]:
    """The samples of all contexts with a unit, in the order of the cases, computed in `workers` processes."""
    found = parallel.make_all(partial(make, scorer=scorer), cases, workers)
    return [sample for sample in found if sample is not None]
