"""Token classifiers as compression models: another scorer says which units matter, they which words of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compression.choosing.assembly import Assembler, Slice
from compression.choosing.cutting import Cutting, parts_of, plan_cuts, select, thin_out
from compression.choosing.selection import SelectionSettings
from compression.counting.counter import TokenCounter
from compression.neural.llmlingua2 import LLMLingua2
from compression.neural.neural_model import NeuralModel, Running
from compression.neural.token_classifier import TokenClassifier
from compression.neural.windows import Job
from compression.pipeline.pipeline import Prepared
from compression.pipeline.request import CompressionResult
from compression.scorers.scorer import Scorer


@dataclass(frozen=True, slots=True)
class Steering:
    """Who scores the units, how tokens are counted, and how units are chosen."""

    scorer: Scorer
    counter: TokenCounter
    selection: SelectionSettings


@dataclass(frozen=True, slots=True)
class _Steered:
    """A request whose units were scored. `weights` are the scores, or equal where there is no query."""

    prepared: Prepared
    scores: Sequence[float]
    weights: Sequence[float]

    def cutting(self, parts: Mapping[int, Sequence[Slice]]) -> Cutting:
        request = self.prepared.request
        return Cutting(self.prepared.text, self.weights, parts, request.preserve_order, request.mark_gaps)


def _steer(prepared: Prepared, scorer: Scorer) -> _Steered:
    scores = scorer.score(prepared.request.query, prepared.text)
    return _Steered(prepared, scores, scores if any(scores) else [1.0] * len(scores))


class WordModel(NeuralModel):
    """Unit scores say how much each unit may keep, a token classifier which words of its prose those are."""

    def __init__(self, running: Running, steering: Steering, classifier: TokenClassifier) -> None:
        super().__init__(running)
        self._steering = steering
        self._classifier = classifier

    async def _choose(self, prepared: Prepared) -> CompressionResult:
        steered, job = await self._in_thread(self._plan, prepared)
        spans = await self._run(job)
        return await self._in_thread(self._finish, steered, spans)

    def _plan(self, prepared: Prepared) -> tuple[_Steered, Job[list[tuple[int, int]]]]:
        steered, text = _steer(prepared, self._steering.scorer), prepared.text
        costs = self._steering.counter.count_many(Assembler(text).pieces())
        cuts = plan_cuts(text, steered.weights, costs, prepared.budget)
        spans = [(text.units[unit].start, text.units[unit].end) for unit in cuts]
        query = prepared.request.query
        return steered, self._classifier.keep_words_job(query, text.source, spans, list(cuts.values()))

    def _finish(self, steered: _Steered, spans: Sequence[tuple[int, int]]) -> CompressionResult:
        prepared = steered.prepared
        cutting = steered.cutting(parts_of(prepared.text, spans))
        slices = select(cutting, prepared.budget, self._steering.counter, self._steering.selection)
        return self._pipeline.finish_slices(prepared, steered.scores, slices)


class FaithfulModel(NeuralModel):
    """Keeps the words that LLMLingua-2 keeps; where they exceed the budget, those of the worst units go."""

    def __init__(self, running: Running, steering: Steering, original: LLMLingua2) -> None:
        super().__init__(running)
        self._steering = steering
        self._original = original

    async def _choose(self, prepared: Prepared) -> CompressionResult:
        request = prepared.request
        mask = await self._service.call(
            lambda: self._original.mask(request.input, prepared.target_ratio), prepared.original_tokens
        )
        spans = [Slice(*span) for span, kept in zip(mask.spans, mask.kept, strict=True) if span and kept]
        return await self._in_thread(self._finish, prepared, spans)

    def _finish(self, prepared: Prepared, spans: Sequence[Slice]) -> CompressionResult:
        steered = _steer(prepared, self._steering.scorer)
        spaced = _with_space_before(prepared.text.source, spans)
        slices = thin_out(steered.cutting({}), spaced, prepared.budget, self._steering.counter)
        return self._pipeline.finish_slices(prepared, steered.scores, slices)


def _with_space_before(source: str, spans: Sequence[Slice]) -> list[Slice]:
    """Each span with the one white space before it, but for the first."""
    return [
        Slice(start - 1, end)
        if at and start > spans[at - 1].end and source[start - 1].isspace()
        else Slice(start, end)
        for at, (start, end) in enumerate(spans)
    ]
