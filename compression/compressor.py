"""The pipeline: segment, score, select, assemble, count, and say what it may have cost."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from compression.assembly import Assembler, Slice, join
from compression.budget import budget_for, fit
from compression.counting import TokenCounter
from compression.errors import ScoresMismatch
from compression.fallback import smallest_output
from compression.flags import Evidence, check
from compression.protection import protect
from compression.receipt import Receipt
from compression.request import CompressionRequest, CompressionResult, UnitScore, check_request
from compression.segmentation import segment
from compression.selection import Selection
from compression.settings import CompressionSettings
from compression.units import Scorer, Segmentation


class Compressor:
    """One compression model: a scorer, the tokenizer of its receipts, and its settings. Safe to share."""

    def __init__(
        self,
        scorer: Scorer,
        counter: TokenCounter,
        settings: CompressionSettings,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._scorer = scorer
        self._counter = counter
        self._settings = settings
        self._clock = clock

    def compress(self, request: CompressionRequest) -> CompressionResult:
        """The part of the input that matters to the query, within the ratio. Raises `CompressionError`."""
        started = self._clock()
        check_request(request, self._settings)
        text = protect(segment(request.input, self._settings.segmentation), self._settings.protections)
        original_tokens = self._counter.count(request.input)
        if request.target_ratio == 1.0:
            whole = [Slice(0, len(request.input))]
            return self._result(request, text, whole, None, original_tokens, started)
        scores = self._scores(request.query, text)
        slices = self._select(request, text, scores, budget_for(original_tokens, request.target_ratio))
        return self._result(request, text, slices, scores, original_tokens, started)

    def _scores(self, query: str, text: Segmentation) -> Sequence[float]:
        scores = [float(score) for score in self._scorer.score(query, text)] if text.units else []
        if len(scores) != len(text.units):
            raise ScoresMismatch(f"{len(scores)} scores for {len(text.units)} units")
        if not all(map(math.isfinite, scores)):
            raise ScoresMismatch("a score is no finite number")
        return scores

    def _select(
        self, request: CompressionRequest, text: Segmentation, scores: Sequence[float], budget: int
    ) -> list[Slice]:
        if not text.units:
            return []
        assembler = Assembler(text)

        def assemble(kept: Sequence[int]) -> list[Slice]:
            if request.preserve_order:
                return assembler.assemble(kept)
            return assembler.assemble_by_relevance(kept, scores)

        costs = self._counter.count_many(assembler.pieces())
        selection = Selection(text, scores, costs, self._settings.selection)
        kept = fit(selection, budget, lambda kept: self._counter.count(join(text.source, assemble(kept))))
        return assemble(kept) if kept else smallest_output(text, scores, budget, self._counter)

    def _result(
        self,
        request: CompressionRequest,
        text: Segmentation,
        slices: Sequence[Slice],
        scores: Sequence[float] | None,
        original_tokens: int,
        started: float,
    ) -> CompressionResult:
        output = join(text.source, slices)
        output_tokens = original_tokens if scores is None else self._counter.count(output)
        evidence = Evidence(
            query=request.query,
            text=text,
            slices=slices,
            output=output,
            scores=scores,
            target_ratio=request.target_ratio,
            budget=budget_for(original_tokens, request.target_ratio),
            original_tokens=original_tokens,
            output_tokens=output_tokens,
            settings=self._settings.flags,
        )
        flags = check(evidence)
        explained = _explained(evidence) if request.explain else ()
        latency_ms = (self._clock() - started) * 1000
        receipt = Receipt(
            original_tokens, output_tokens, request.target_ratio, latency_ms, self._counter.name, flags
        )
        return CompressionResult(output, receipt, tuple(slices), explained)


def _explained(evidence: Evidence) -> tuple[UnitScore, ...]:
    scores = evidence.scores or [1.0] * len(evidence.text.units)
    kept = set(evidence.kept_units)
    return tuple(
        UnitScore(unit.start, unit.end, unit.kind, score, index in kept)
        for index, (unit, score) in enumerate(zip(evidence.text.units, scores, strict=True))
    )
