"""Compresses one question's text at many ratios; records the signals and whether the evidence was kept."""

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing import get_context
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from compression.calibration.calibration import kept_shares
from compression.calibration.context import Context, Floats, kind_of, read, scripts_of
from compression.calibration.estimate import NO_ESTIMATE, Calibration, Estimate, ScoredText, Slices
from compression.calibration.signals import NAMES, of_choice, of_text
from compression.choosing.budget import budget_for
from compression.choosing.selection import SelectionSettings
from compression.pipeline.compression_model import CompressionRequest, CompressionResult
from compression.pipeline.pipeline import Pipeline
from compression.pipeline.spec import CompressionSettings, ModelSpec
from compression.scorers.kinds import KINDS
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


Item = TypeVar("Item")
_observe: Callable[[Any], Any] | None = None


class CannotObserve(RuntimeError):
    """A model that cannot be built, or an item that it cannot compress."""


def observe_all(
    spec: ModelSpec,
    items: Sequence[Item],
    question_of: Callable[[Item], Any],
    workers: int,
    scoring_of: Callable[[ModelSpec], Score] | None = None,
) -> Iterator[Any]:
    """An `Observed` for each item, in order.

    `question_of` makes a `Question` of one, in the process that compresses it; with one worker that is this one.
    `scoring_of` is `build_scoring` unless given. Raises `CannotObserve` where the model cannot be built, or an item
    not be compressed.
    """
    if workers == 1:
        _begin(spec, question_of, scoring_of)
        yield from map(_run, items)
        return
    with get_context("spawn").Pool(
        min(workers, max(1, len(items))), _begin, (spec, question_of, scoring_of)
    ) as pool:
        yield from pool.imap(_run, items, chunksize=1)


def _begin(
    spec: ModelSpec, question_of: Callable[[Any], Any], scoring_of: Callable[[ModelSpec], Score] | None
) -> None:
    # Read by numpy when it is imported: processes side by side need one thread each.
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    global _observe
    try:
        _observe = _observer(spec, question_of, scoring_of)
    except Exception as error:
        # A pool would replace a process that fails to start without end: the first item reports the failure instead.
        said = f"{type(error).__name__}: {error}"

        def fail(_: Any) -> Any:
            raise CannotObserve(said)

        _observe = fail


def _observer(
    spec: ModelSpec, question_of: Callable[[Any], Any], scoring_of: Callable[[ModelSpec], Score] | None
) -> Callable[[Any], Any]:
    from compression.build import build_scoring, load_counter
    from compression.pipeline.errors import CompressionError

    if KINDS[spec.kind].chooses_words:
        return _word_observer(spec, question_of)
    score = (scoring_of or build_scoring)(spec)
    counter = load_counter(spec.tokenizer, name=spec.tokenizer_name, revision=spec.tokenizer_revision)

    def run(item: Any) -> Any:
        try:
            return observe(question_of(item), score, counter, spec.settings)
        except CompressionError as error:
            raise CannotObserve(str(error)) from None

    return run


def _word_observer(spec: ModelSpec, question_of: Callable[[Any], Any]) -> Callable[[Any], Any]:
    from compression.build import build_model
    from compression.pipeline.errors import CompressionError, CompressorFailed, CompressorUnavailable

    model = build_model(spec)

    async def each(requests: Sequence[CompressionRequest]) -> list[CompressionResult]:
        return [await model.compress(request) for request in requests]

    def run(item: Any) -> Any:
        try:
            return observe_words(question_of(item), lambda requests: asyncio.run(each(requests)))
        except (CompressionError, CompressorFailed, CompressorUnavailable) as error:
            raise CannotObserve(str(error)) from None

    return run


def _run(item: Any) -> Any:
    assert _observe is not None
    return _observe(item)
