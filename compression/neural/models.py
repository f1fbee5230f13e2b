"""Neural compression models: CPU work in threads, batched forward passes, and units or words chosen by scores."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from compression.choosing.assembly import Assembler
from compression.choosing.budget import Choice, CutAssembler, parts_of, plan_cuts
from compression.neural.batching import (
    Floats,
    Job,
    Network,
    NeuralClosed,
    NeuralOverloaded,
    NeuralService,
    QueryTooLong,
)
from compression.neural.token_classifier import TokenClassifier
from compression.pipeline.compression_model import BoundedModel, CompressionRequest, CompressionResult, done
from compression.pipeline.errors import (
    CompressorFailed,
    CompressorOverloaded,
    CompressorUnavailable,
    RefusedRequest,
)
from compression.pipeline.pipeline import Pipeline, Prepared
from compression.scorers.kinds import Blend
from compression.scorers.lexical import LexicalScorer, Scorer, chances
from compression.source.units import Segmentation

Result = TypeVar("Result")
_LARGE_CHARS = 64 * 1024
# Of the request that the running task works on.
_is_large: ContextVar[bool] = ContextVar("_is_large")


@dataclass(frozen=True, slots=True)
class Running:
    """Pipeline and service of a model. `max_waiting` bounds the requests that are in it at once."""

    pipeline: Pipeline
    service: NeuralService
    max_waiting: int


class NeuralModel(BoundedModel):
    """A compression model around a network; a subclass says in `_choose` what is kept."""

    def __init__(self, running: Running) -> None:
        super().__init__(running.max_waiting)
        self._pipeline = running.pipeline
        self._service = running.service
        # A large text takes minutes where a small one takes milliseconds.
        self._threads = {
            is_large: ThreadPoolExecutor(1, thread_name_prefix="compress-large" if is_large else "compress")
            for is_large in (False, True)
        }

    async def _compress(self, request: CompressionRequest) -> CompressionResult:
        _is_large.set(len(request.input) > _LARGE_CHARS)
        with network_errors_translated():
            prepared = await self._in_thread(self._pipeline.prepare, request)
            if not prepared.needs_scores:
                return await self._in_thread(self._pipeline.finish, prepared, ())
            return await self._choose(prepared)

    async def close(self) -> None:
        self._closed = True
        await self._service.close()
        for thread in self._threads.values():
            thread.shutdown(wait=False, cancel_futures=True)

    async def _choose(self, prepared: Prepared) -> CompressionResult:
        raise NotImplementedError

    async def _in_thread(self, work: Callable[..., Result], *arguments: object) -> Result:
        """Off the event loop, which must stay free for the others."""
        try:
            running = self._threads[_is_large.get()].submit(work, *arguments)
        except RuntimeError as error:
            raise CompressorUnavailable("the compressor is shutting down") from error
        return await done(running)

    async def _run(self, job: Job[Result]) -> Result:
        # `NeuralService.run` finishes a job on the event loop, which a long text would hold up.
        outputs: Sequence[Floats] = await self._service.run(Job(job.windows, list))
        return await self._in_thread(job.finish, outputs)


@contextmanager
def network_errors_translated() -> Iterator[None]:
    """Turns errors of the network into those of `compression.pipeline.errors`, which are all that a server knows."""
    try:
        yield
    except NeuralOverloaded as error:
        raise CompressorOverloaded(str(error)) from error
    except NeuralClosed as error:
        raise CompressorUnavailable(str(error)) from error
    except QueryTooLong as error:
        raise RefusedRequest("query", str(error).removeprefix("query: ")) from error
    except (CompressorUnavailable, CompressorFailed):
        raise
    except RuntimeError as error:  # what torch raises, for want of memory too, and ScoresMismatch
        raise CompressorFailed(f"{type(error).__name__}: {error}") from error


class NetworkScorer(Scorer, Protocol):
    """A scorer that runs a network. `score` runs it at once; the windows of `score_job` are for a `NeuralService`."""

    network: Network

    def score_job(self, query: str, text: Segmentation) -> Job[list[float]]: ...


class ScoredModel(NeuralModel):
    """Keeps the units that a network and the lexical scorer together score best."""

    def __init__(self, running: Running, scorer: NetworkScorer, lexical: LexicalScorer, blend: Blend) -> None:
        super().__init__(running)
        self._scorer = scorer
        self._lexical = lexical
        self._blend = blend

    async def _choose(self, prepared: Prepared) -> CompressionResult:
        if not prepared.request.query.strip():
            # Without a query nothing is near it; as the lexical scorer does, keep the beginning.
            return await self._in_thread(self._pipeline.finish, prepared, [0.0] * len(prepared.text.units))
        job = await self._in_thread(self._scorer.score_job, prepared.request.query, prepared.text)
        scores = await self._run(job)
        return await self._in_thread(self._finish, prepared, scores)

    def _finish(self, prepared: Prepared, scores: Sequence[float]) -> CompressionResult:
        query, text = prepared.request.query, prepared.text
        return self._pipeline.finish(prepared, blended(scores, self._lexical, self._blend, query, text))


def blended(
    scores: Sequence[float], lexical: LexicalScorer, blend: Blend, query: str, text: Segmentation
) -> list[float]:
    """A network's scores, one a unit, joined with those of the lexical scorer, and looked at again."""
    glance = lexical.glance(query, text)
    neural = blend.neural * (np.asarray(scores, np.float64) - blend.midpoint)
    logits = neural + blend.lexical * np.asarray(glance.logits, np.float64)
    return chances(lexical.look_again(glance, np.asarray(logits, np.float32)))


def steered(prepared: Prepared, scorer: Scorer) -> tuple[Sequence[float], Choice]:
    """The scores of the units, and the choice by them; by equal ones where there is no query."""
    request, scores = prepared.request, scorer.score(prepared.request.query, prepared.text)
    weights = scores if any(scores) else [1.0] * len(scores)
    return scores, Choice(prepared.text, weights, request.preserve_order, request.mark_gaps)


class WordModel(NeuralModel):
    """Unit scores say how much each unit may keep, a token classifier which words of its prose those are."""

    def __init__(self, running: Running, scorer: Scorer, classifier: TokenClassifier) -> None:
        super().__init__(running)
        self._scorer = scorer
        self._classifier = classifier

    async def _choose(self, prepared: Prepared) -> CompressionResult:
        scores, choice, job = await self._in_thread(self._plan, prepared)
        spans = await self._run(job)
        return await self._in_thread(self._finish, prepared, scores, choice, spans)

    def _plan(self, prepared: Prepared) -> tuple[Sequence[float], Choice, Job[list[tuple[int, int]]]]:
        (scores, choice), text = steered(prepared, self._scorer), prepared.text
        costs = self._pipeline.counter.count_many(Assembler(text).pieces())
        cuts = plan_cuts(text, choice.scores, costs, prepared.budget)
        spans = [(text.units[unit].start, text.units[unit].end) for unit in cuts]
        query = prepared.request.query
        return scores, choice, self._classifier.keep_words_job(query, text.source, spans, list(cuts.values()))

    def _finish(
        self, prepared: Prepared, scores: Sequence[float], choice: Choice, spans: Sequence[tuple[int, int]]
    ) -> CompressionResult:
        assembler = CutAssembler(prepared.text, parts_of(prepared.text, spans))
        pipeline = self._pipeline
        slices = choice.slices(assembler, prepared.budget, pipeline.counter, pipeline.settings.selection)
        return pipeline.finish_slices(prepared, scores, slices)
