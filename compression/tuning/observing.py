"""Compresses one question's text at many ratios; records the signals and whether the evidence was kept."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from compression.calibration.calibration import kept_shares
from compression.calibration.context import Context, Floats, read
from compression.calibration.estimate import NO_ESTIMATE, Calibration, Estimate
from compression.calibration.estimator import ScoredText, Slices
from compression.calibration.ranges import kind_of, scripts_of
from compression.calibration.signals import NAMES, of_choice, of_text
from compression.choosing.budget import budget_for
from compression.choosing.selection import SelectionSettings
from compression.counting.counter import TokenCounter
from compression.pipeline.pipeline import Pipeline
from compression.pipeline.request import CompressionRequest, CompressionResult
from compression.pipeline.settings import CompressionSettings
from compression.source.units import Segmentation

RATIOS = (0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.75, 0.9)
# Ratios that callers ask for.
USUAL_RATIOS = (0.05, 0.5)
Score = Callable[[str, Segmentation], Sequence[float]]
Holds = Callable[[CompressionResult], bool]


@dataclass(frozen=True, slots=True)
class Question:
    """A query to a text, and how to tell whether a compression of it kept the evidence.

    `group`: questions of one group are never on both sides of a split, since they are alike. `is_tool_result` and
    `known` are those of the request.
    """

    suite: str
    group: str
    query: str
    text: str
    holds: Holds
    is_tool_result: bool = False
    known: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Observed:
    """One question at each of `RATIOS`: a row of signals a ratio, what came out, and whether that kept the evidence."""

    suite: str
    group: str
    kind: str
    scripts: frozenset[str]
    tokens: int
    signals: NDArray[np.float32]
    ratios: Floats
    kept: NDArray[np.bool_]


class _Recorder:
    """Takes the place of a calibration in a pipeline and records what it is given. The text is read once."""

    def __init__(self) -> None:
        self.about = Calibration("recorder", "")
        self.rows: list[Floats] = []
        self.kind = ""
        self._read: tuple[Segmentation, Context, Floats] | None = None

    def estimate(self, scored: ScoredText, slices: Slices, output_tokens: int) -> Estimate:
        text = scored.text
        if self._read is None or self._read[0] is not text:
            context = read(scored.query, text, scored.scores or [1.0] * len(text.units), scored.tokens)
            self._read = (text, context, of_text(context))
            self.kind = kind_of(text, context)
        _, context, known = self._read
        choice = of_choice(context, kept_shares(text, slices), output_tokens / max(1, scored.tokens))
        self.rows.append(np.concatenate([known, choice]))
        return NO_ESTIMATE

    def smallest_ratio(
        self, keep: float, scored: ScoredText, costs: Sequence[int], settings: SelectionSettings
    ) -> float:
        """Nothing is fitted yet, so nothing can be promised."""
        return 1.0


def observe(
    question: Question, score: Score, counter: TokenCounter, settings: CompressionSettings
) -> Observed:
    """Raises a `CompressionError` where the question cannot be compressed."""
    recorder = _Recorder()
    pipeline = Pipeline(counter, settings, calibration=recorder, of_records=recorder)
    prepared = pipeline.prepare(
        CompressionRequest(
            question.query, question.text, 0.5, is_tool_result=question.is_tool_result, known=question.known
        )
    )
    scores = score(question.query, prepared.text) if prepared.text.units else []
    kept, ratios = [], []
    for ratio in RATIOS:
        budget = budget_for(prepared.original_tokens, ratio)
        result = pipeline.finish(replace(prepared, target_ratio=ratio, budget=budget), list(scores))
        kept.append(question.holds(result))
        ratios.append(result.receipt.compression_ratio)
    return Observed(
        question.suite, question.group, recorder.kind, scripts_of(question.text), prepared.original_tokens,
        np.array(recorder.rows, np.float32).reshape(len(RATIOS), len(NAMES)), np.array(ratios), np.array(kept, bool),
    )  # fmt: skip
