"""The pipeline around a scorer, in two halves: what comes before the scores, and from scores to the receipt.

A scorer that is awaited, or that decides word by word, runs between the halves; `Compressor` is the plain case.
"""

import hashlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from compression.calibration.calibration import Calibrated
from compression.calibration.estimate import Estimate, Estimator, ScoredText
from compression.choosing.assembly import Assembler, renderer
from compression.choosing.budget import Choice, budget_for
from compression.choosing.diversity import diversify
from compression.choosing.gist import with_place
from compression.choosing.protection import protect
from compression.choosing.selection import SelectionSettings
from compression.flags import Evidence, check
from compression.pipeline.compression_model import (
    CompressionRequest,
    CompressionResult,
    Receipt,
    Size,
    Sized,
    UnitScore,
    check_request,
    check_units,
    spans_sha256,
)
from compression.pipeline.errors import NotCalibrated, ScoresMismatch
from compression.pipeline.spec import CompressionSettings, ModelSpec
from compression.salience import (
    is_record,
    rank_history,
    read_salience,
    with_causes,
    with_findings,
    with_named,
    with_replies,
    worths,
)
from compression.scorers.functions import with_functions
from compression.scorers.kinds import KINDS
from compression.scorers.lexical import Scorer
from compression.second_look.threads import with_threads
from compression.segmentation import segment
from compression.source.token_counter import TokenCounter
from compression.source.units import Segmentation, Slice, join


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that was checked, cut into units and counted.

    `target_ratio` is the request's, or what its promise needs; `estimated_ratio` is the latter, once scores are known.
    `budget` is in tokens; `started` is the clock's. `is_record`: a tool's result in JSON, any value of which may
    be needed.
    """

    request: CompressionRequest
    text: Segmentation
    original_tokens: int
    target_ratio: float
    budget: int
    started: float
    estimated_ratio: float | None = None
    is_record: bool = False

    @property
    def room(self) -> int:
        """Tokens that the output may have. Marks come on top of what a promise needs: they must cost no evidence."""
        is_promise = self.request.keep is not None
        return self.original_tokens if is_promise and self.request.mark_gaps else self.budget

    def scored(self, scores: Sequence[float] | None) -> ScoredText:
        return ScoredText(self.request.query, self.text, scores, self.original_tokens)

    @property
    def needs_scores(self) -> bool:
        """False where the input comes back as it is, or has no units."""
        return not (self.is_whole and not self.request.sizes) and bool(self.text.units)

    @property
    def is_whole(self) -> bool:
        """The input is to come back as it is."""
        return self.request.keep is None and self.target_ratio == 1.0

    def at(self, size: Size, highest_ratio: float, started: float) -> "Prepared":
        """The same text for another size alone; what a promise needs is known once there are scores."""
        asked = replace(self.request, target_ratio=size.target_ratio, keep=size.keep, sizes=())
        ratio = highest_ratio if size.target_ratio is None else size.target_ratio
        budget = budget_for(self.original_tokens, ratio)
        return replace(self, request=asked, target_ratio=ratio, budget=budget, started=started)


class Pipeline:
    """Segmentation, budget, assembly, counting and flags of one compression model. Safe to share."""

    def __init__(
        self,
        counter: TokenCounter,
        settings: CompressionSettings,
        *,
        calibration: Estimator | None = None,
        of_records: Estimator | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`of_records` is the calibration for tools' results in JSON; without one a promise treats them as any text."""
        self.counter = counter
        self.settings = settings
        self._calibration = calibration
        self._of_records = of_records
        self._clock = clock

    def prepare(self, request: CompressionRequest) -> Prepared:
        """Raises a `CompressionError` for what cannot be compressed."""
        started = self._clock()
        check_request(request, self.settings)
        if request.keep is not None and self._calibration is None:
            raise NotCalibrated
        # What a promise needs is known once there are scores.
        ratio = self.settings.highest_ratio if request.target_ratio is None else request.target_ratio
        text, is_record = self._segmented(request)
        check_units(len(text.units), len(request.sizes))
        text = protect(text, self.settings.protections)
        tokens = self.counter.count(request.input)
        return Prepared(request, text, tokens, ratio, budget_for(tokens, ratio), started, is_record=is_record)

    def _segmented(self, request: CompressionRequest) -> tuple[Segmentation, bool]:
        """The input in units, and whether it is a record of which any value may be needed."""
        asked = replace(self.settings.segmentation, question=request.query)
        text = segment(request.input, asked)
        may_be = request.is_tool_result and (request.keep is None or self._of_records is not None)
        if not may_be or not is_record(text):
            return text, False
        return segment(
            request.input, replace(self.settings.segmentation_of_records, question=request.query)
        ), True

    def identity(self, prepared: Prepared) -> CompressionResult:
        """The input, byte for byte."""
        return self.finish_slices(prepared, None, [Slice(0, len(prepared.text.source))], is_whole=True)

    def finish(self, prepared: Prepared, scores: Sequence[float]) -> CompressionResult:
        """Keep the units that score best. Raises `ScoresMismatch` unless there is one finite score a unit."""
        if prepared.is_whole and not prepared.request.sizes:
            return self.identity(prepared)
        ranked = _ranked(scores, prepared)
        assembler = Assembler(prepared.text)
        costs = self.counter.count_many(assembler.pieces())
        result = self._chosen(prepared, ranked, assembler, costs)
        others = []
        for size in prepared.request.sizes:
            one = prepared.at(size, self.settings.highest_ratio, self._clock())
            found = self._chosen(one, ranked, assembler, costs)
            others.append(Sized(found.receipt, found.kept))
        return replace(result, sizes=tuple(others)) if others else result

    def _chosen(
        self, prepared: Prepared, ranked: Sequence[float], assembler: Assembler, costs: Sequence[int]
    ) -> CompressionResult:
        """What is left at the one size that is asked for."""
        if prepared.is_whole:
            return self.identity(prepared)
        prepared = self._sized(prepared, ranked, costs)
        if prepared.target_ratio == 1.0:
            return self.identity(prepared)
        return self.finish_slices(prepared, ranked, self._select(prepared, ranked, assembler, costs))

    def finish_slices(
        self,
        prepared: Prepared,
        scores: Sequence[float] | None,
        slices: Sequence[Slice],
        *,
        is_whole: bool = False,
    ) -> CompressionResult:
        """Assemble, count and check the slices of the source that some other way of choosing has left.

        `is_whole` where the input is to come back byte for byte.
        """
        text, whole = prepared.text, prepared.request.input
        kept = [Slice(0, len(whole))] if is_whole else text.raw_slices(slices)
        output, output_tokens = (
            (whole, prepared.original_tokens) if is_whole else self._written(prepared, slices)
        )
        estimate = self._estimate(prepared, scores, slices, output_tokens)
        evidence = Evidence(
            query=prepared.request.query,
            text=text,
            slices=slices,
            output=output if text.origin is None else join(text.source, slices),
            scores=scores,
            target_ratio=prepared.target_ratio,
            budget=prepared.room,
            original_tokens=prepared.original_tokens,
            output_tokens=output_tokens,
            settings=self.settings.flags,
            estimate=estimate,
            is_promised=prepared.request.keep is not None,
        )
        flags = check(evidence)
        explained = _explained(evidence) if prepared.request.explain else ()
        receipt = Receipt(
            original_tokens=evidence.original_tokens,
            output_tokens=evidence.output_tokens,
            target_ratio=prepared.request.target_ratio,
            latency_ms=(self._clock() - prepared.started) * 1000,
            tokenizer=self.counter.name,
            risk_flags=flags,
            keep=prepared.request.keep,
            estimated_ratio=prepared.estimated_ratio,
            evidence_kept_probability=estimate.probability if estimate else None,
            calibration=calibration.about if (calibration := self._calibration_of(prepared)) else None,
            tokenizer_sha256=self.counter.sha256,
            source_sha256=hashlib.sha256(whole.encode()).hexdigest(),
            kept_sha256=spans_sha256(kept),
        )
        return CompressionResult(output, receipt, tuple(kept), explained)

    def _sized(self, prepared: Prepared, scores: Sequence[float], costs: Sequence[int]) -> Prepared:
        """With the ratio and budget that a promise needs, within what this model takes; as it is where a ratio was
        asked for."""
        keep, calibration = prepared.request.keep, self._calibration_of(prepared)
        if keep is None or calibration is None:
            return prepared
        scored = prepared.scored(scores)
        ratio = calibration.smallest_ratio(keep, scored, costs, self._selection_of(prepared))
        ratio = min(max(ratio, self.settings.lowest_ratio), self.settings.highest_ratio)
        return replace(
            prepared,
            target_ratio=ratio,
            budget=budget_for(prepared.original_tokens, ratio),
            estimated_ratio=ratio,
        )

    def _written(self, prepared: Prepared, slices: Sequence[Slice]) -> tuple[str, int]:
        """The output and its tokens; without the marks that were asked for where the budget has no room for them."""
        plain = prepared.text.raw(slices)
        if plain == prepared.request.input:
            return plain, prepared.original_tokens
        marked = renderer(prepared.text, mark_gaps=prepared.request.mark_gaps)(slices)
        tokens = self.counter.count(marked)
        if marked == plain or tokens <= prepared.room:
            return marked, tokens
        return plain, self.counter.count(plain)

    def _estimate(
        self, prepared: Prepared, scores: Sequence[float] | None, slices: Sequence[Slice], tokens: int
    ) -> Estimate | None:
        calibration = self._calibration_of(prepared)
        return None if calibration is None else calibration.estimate(prepared.scored(scores), slices, tokens)

    def _calibration_of(self, prepared: Prepared) -> Estimator | None:
        return self._of_records if prepared.is_record else self._calibration

    def _selection_of(self, prepared: Prepared) -> SelectionSettings:
        return replace(self.settings.selection, adds_up=prepared.is_record)

    def _select(
        self, prepared: Prepared, scores: Sequence[float], assembler: Assembler, costs: Sequence[int]
    ) -> list[Slice]:
        request = prepared.request
        if not prepared.text.units:
            return []
        # A promise's budget is for the text alone.
        marks = request.mark_gaps and request.keep is None
        choice = Choice(prepared.text, scores, request.preserve_order, marks)
        return choice.slices(assembler, prepared.budget, self.counter, self._selection_of(prepared), costs)


def _ranked(scores: Sequence[float], prepared: Prepared) -> list[float]:
    """The scores by which units are chosen: repetitions come after what is new, noise after everything."""
    text, request = prepared.text, prepared.request
    given = with_functions(text, _checked(scores, text), request.query)
    given = with_causes(text, with_named(text, given, request.query), request.query)
    if prepared.is_record:
        worth = worths(text, given, request.query, frozenset(request.known))
        # Odds add up as worths do.
        given = [each / (1.0 + each) for each in worth]
    else:
        given = rank_history(text, with_findings(text, given, request.query), request.query)
        given = with_replies(text, with_threads(text, given, request.query))
        given = with_place(text, given, request.query)
    return diversify(text, given, read_salience(text))


def _checked(scores: Sequence[float], text: Segmentation) -> list[float]:
    numbers = [float(score) for score in scores]
    if len(numbers) != len(text.units):
        raise ScoresMismatch(f"{len(numbers)} scores for {len(text.units)} units")
    if not all(map(math.isfinite, numbers)):
        raise ScoresMismatch("a score is not a finite number")
    return numbers


def _explained(evidence: Evidence) -> tuple[UnitScore, ...]:
    text = evidence.text
    scores = evidence.scores or [1.0] * len(text.units)
    kept = set(evidence.kept_units)
    return tuple(
        UnitScore(*text.raw_span(unit.start, unit.end), unit.kind, score, index in kept)
        for index, (unit, score) in enumerate(zip(text.units, scores, strict=True))
    )


class Compressor:
    """A scorer and what is around it. Safe to share where the scorer is."""

    def __init__(self, scorer: Scorer, pipeline: Pipeline) -> None:
        self._scorer = scorer
        self._pipeline = pipeline

    def compress(self, request: CompressionRequest) -> CompressionResult:
        """The part of the input that matters to the query, within the ratio.

        Raises `CompressionError` for what cannot be compressed, and `ScoresMismatch` where the scorer is at fault.
        """
        prepared = self._pipeline.prepare(request)
        scores = self._scorer.score(request.query, prepared.text) if prepared.needs_scores else ()
        return self._pipeline.finish(prepared, scores)


# Of tools' results in JSON, which are compressed for an agent, the kind's entry in the file has this at its end.
OF_RECORDS = " results"


def calibration_of_records(spec: ModelSpec) -> Calibrated | None:
    """Pith's own for tools' results in JSON, whatever file the spec names: `pith tune` fits none. Raises as below."""
    return Calibrated.load(spec.kind + OF_RECORDS) if spec.blend_used == KINDS[spec.kind].blend else None


def calibration_of(spec: ModelSpec) -> Calibrated | None:
    """The file that the spec names, or pith's own for the kind. Raises `BadCalibration`, `FileNotFoundError`.

    Pith's own was fitted with the kind's own blend: with another, scores mean something else.
    """
    if spec.calibration is not None:
        return Calibrated.load(spec.kind, Path(spec.calibration).expanduser())
    has_own_blend = spec.blend_used != KINDS[spec.kind].blend
    return None if has_own_blend else Calibrated.load(spec.kind)


def pipeline_of(spec: ModelSpec, counter: TokenCounter) -> Pipeline:
    """Raises `BadCalibration` and `FileNotFoundError`."""
    return Pipeline(
        counter,
        spec.settings,
        calibration=calibration_of(spec),
        of_records=calibration_of_records(spec),
    )
