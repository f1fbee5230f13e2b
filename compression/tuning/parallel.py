"""Observes questions in processes of their own, each of which loads the model once."""

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import get_context
from typing import Any, TypeVar

from compression.pipeline.request import CompressionRequest, CompressionResult
from compression.pipeline.spec import ModelSpec
from compression.scorers.kinds import KINDS
from compression.source.units import Segmentation

Item = TypeVar("Item")
Score = Callable[[str, Segmentation], Sequence[float]]
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
    from compression.tuning.observing import observe

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
    from compression.tuning.observing import observe_words

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
