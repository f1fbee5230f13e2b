"""Compresses one question's text at many ratios; records the signals and whether the evidence was kept."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from compression.calibration.calibration import kept_shares
from compression.calibration.context import Context, Floats, kind_of, read, scripts_of
from compression.calibration.estimate import NO_ESTIMATE, Calibration, Estimate, ScoredText, Slices
from compression.calibration.signals import NAMES, of_choice, of_text
from compression.choosing.budget import budget_for
from compression.choosing.selection import SelectionSettings
from compression.pipeline.pipeline import Pipeline
from compression.pipeline.request import CompressionRequest, CompressionResult
from compression.pipeline.spec import CompressionSettings
from compression.source.token_counter import TokenCounter
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
    """One question at each of `RATIOS`: a row of signals a ratio, what came out, and whether that kept the evidence.

    Of a model that chooses words there are no signals. `ms`: milliseconds that one compression took, on the mean.
    """

    suite: str
    group: str
    kind: str
    scripts: frozenset[str]
    tokens: int
    signals: NDArray[np.float32]
    ratios: Floats
    kept: NDArray[np.bool_]
    ms: float = 0.0


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
    recorder, began = _Recorder(), perf_counter()
    pipeline = Pipeline(counter, settings, calibration=recorder, of_records=recorder)
    prepared = pipeline.prepare(
        CompressionRequest(
            question.query, question.text, 0.5, is_tool_result=question.is_tool_result, known=question.known
        )
    )
    scores = score(question.query, prepared.text) if prepared.text.units else []
    scored = perf_counter()
    results = []
    for ratio in RATIOS:
        budget = budget_for(prepared.original_tokens, ratio)
        results.append(pipeline.finish(replace(prepared, target_ratio=ratio, budget=budget), list(scores)))
    took_s = scored - began + (perf_counter() - scored) / len(RATIOS)
    signals = np.array(recorder.rows, np.float32).reshape(len(RATIOS), len(NAMES))
    return _observed(question, recorder.kind, signals, results, took_s)


def observe_words(
    question: Question, compress: Callable[[Sequence[CompressionRequest]], Sequence[CompressionResult]]
) -> Observed:
    """For a model that chooses words, to which no calibration can be fitted: what comes out, and in what time. Raises
    what `compress` does."""
    requests = [
        CompressionRequest(
            question.query, question.text, ratio, is_tool_result=question.is_tool_result, known=question.known
        )
        for ratio in RATIOS
    ]
    began = perf_counter()
    results = compress(requests)
    took_s = (perf_counter() - began) / len(RATIOS)
    return _observed(question, "", np.empty((len(RATIOS), 0), np.float32), results, took_s)


def _observed(
    question: Question,
    kind: str,
    signals: NDArray[np.float32],
    results: Sequence[CompressionResult],
    took_s: float,
) -> Observed:
    return Observed(
        question.suite, question.group, kind, scripts_of(question.text), results[0].receipt.original_tokens, signals,
        np.array([result.receipt.compression_ratio for result in results]),
        np.array([question.holds(result) for result in results], bool), 1000 * took_s,
    )  # fmt: skip
