"""A compression model as a server meets it: requests, results with their receipts, faults, and the model itself.

It is awaited, bounded in what it lets wait, and closed at the end.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import math
from collections.abc import Awaitable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields
from typing import Any, Literal, Protocol, TypeVar

from compression.calibration.estimate import Calibration
from compression.flags import Flag
from compression.pipeline.errors import (
    CompressionError,
    CompressionTimedOut,
    CompressorFailed,
    CompressorOverloaded,
    CompressorUnavailable,
    EmptyInput,
    InputTooLarge,
    KeepOutOfRange,
    NeitherRatioNorKeep,
    NotText,
    RatioAndKeepGiven,
    RatioOutOfRange,
    RefusedRequest,
    TextTooLong,
)
from compression.pipeline.spec import CompressionSettings
from compression.source.units import Slice, UnitKind

log = logging.getLogger(__name__)
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Receipt:
    """Tokens are counted with `tokenizer`; the ratio is output by original, 1 where the original has no tokens.

    Asked for were `target_ratio` or `keep`, and the other is None. `estimated_ratio` is what the calibration says that
    `keep` needs. `evidence_kept_probability`, from 0 to 1, and `calibration` are None where the model has none.
    """

    original_tokens: int
    output_tokens: int
    target_ratio: float | None
    latency_ms: float
    tokenizer: str
    risk_flags: tuple[Flag, ...]
    keep: float | None = None
    estimated_ratio: float | None = None
    evidence_kept_probability: float | None = None
    calibration: Calibration | None = None
    # SHA-256, in hex: of the input's UTF-8, of the kept spans as `spans_sha256` has them, and of the tokenizer's file.
    # The first two are empty of several texts.
    source_sha256: str = ""
    kept_sha256: str = ""
    tokenizer_sha256: str = ""

    def __setstate__(self, state: Sequence[Any]) -> None:
        """A compressor may be of a version before, which has not the last fields, or of one after."""
        known = Receipt(*state[: len(fields(self))])
        for each in fields(self):
            object.__setattr__(self, each.name, getattr(known, each.name))

    @property
    def tokens_saved(self) -> int:
        return self.original_tokens - self.output_tokens

    @property
    def compression_ratio(self) -> float:
        return self.output_tokens / self.original_tokens if self.original_tokens else 1.0


def spans_sha256(spans: Sequence[Slice]) -> str:
    """Of `[[start,end],…]`, in code points of the input and in the order of the output, as JSON without spaces."""
    pairs = [(start, end) for start, end in spans]
    return hashlib.sha256(json.dumps(pairs, separators=(",", ":")).encode()).hexdigest()


MAX_SIZES = 64
# Each size is chosen anew, and all are one request.
LONGEST_SIZED_BYTES = 200_000
# Units of the text times sizes: what a size costs grows with the units, and lines of one letter are units too.
MOST_SIZED_UNITS = 200_000


# So many sizes more take about as much CPU time as the compression without them.
SIZES_OF_A_REQUEST = 16


@dataclass(frozen=True, slots=True)
class Size:
    """The size of an output: one of a ratio and a promise, and the other is None."""

    target_ratio: float | None = None
    keep: float | None = None


@dataclass(frozen=True, slots=True)
class Sized:
    """The kept slices at another size, in the order of the output, with the receipt that the size asked for by itself
    has. The receipt's latency is that of choosing this size alone."""

    receipt: Receipt
    kept: tuple[Slice, ...]


def as_requests(sizes: int) -> int:
    """The number of compressions that take as long as one with so many sizes."""
    return 1 + math.ceil(sizes / SIZES_OF_A_REQUEST)


def check_units(units: int, sizes: int) -> None:
    """Raises `RefusedRequest` where a text in so many units cannot be told of at so many sizes."""
    most = MOST_SIZED_UNITS // max(units, 1)
    if sizes > most:
        raise RefusedRequest(
            "sizes", f"the input has {units:,} units, so at most {most} sizes can be asked for, not {sizes}"
        )


@dataclass(frozen=True, slots=True)
class CompressionRequest:
    """Either `target_ratio` or `keep` says how much is kept, and the other is None.

    `target_ratio` is the most that output tokens may be of original tokens; `keep` the probability, between 0 and 1,
    with which the evidence is to survive. `mark_gaps` puts a mark where something was left out. With `explain`, the
    result says how every unit scored. `is_tool_result`: an agent's next calls may repeat values of the input,
    whatever the query; `known` are values that it has anyway. `sizes`: what else the result is to be told of; a model
    that chooses words leaves them out.
    """

    query: str
    input: str
    target_ratio: float | None
    preserve_order: bool = True
    explain: bool = False
    keep: float | None = None
    mark_gaps: bool = False
    is_tool_result: bool = False
    known: tuple[str, ...] = ()
    sizes: tuple[Size, ...] = ()


@dataclass(frozen=True, slots=True)
class UnitScore:
    """Score of `input[start:end]`, how much it matters to the query, and whether it was kept."""

    start: int
    end: int
    kind: UnitKind
    score: float
    kept: bool


@dataclass(frozen=True, slots=True)
class CompressionResult:
    """`output` is the concatenation of the slices `kept` of the input, in that order, and of the marks between them."""

    output: str
    receipt: Receipt
    kept: tuple[Slice, ...]
    unit_scores: tuple[UnitScore, ...] = ()
    sizes: tuple[Sized, ...] = ()


def check_request(request: CompressionRequest, settings: CompressionSettings) -> None:
    """Raises a `CompressionError` that names the field at fault."""
    check_size(request, settings)
    for one in request.sizes:
        check_size(one, settings)
    if not request.input:
        raise EmptyInput
    size = _size("input", request.input)
    if size > settings.longest_input_bytes:
        raise InputTooLarge("input", size=size, limit=settings.longest_input_bytes, unit="bytes")
    _size("query", request.query)
    if len(request.query) > settings.longest_query_chars:
        raise InputTooLarge(
            "query", size=len(request.query), limit=settings.longest_query_chars, unit="characters"
        )


def check_texts(request: CompressionRequest) -> None:
    """Raises `NotText`."""
    _size("input", request.input)
    _size("query", request.query)


def check_size(request: CompressionRequest | Size, settings: CompressionSettings) -> None:
    """Raises a `CompressionError` for a size that these settings do not allow."""
    ratio, keep = request.target_ratio, request.keep
    if ratio is not None and keep is not None:
        raise RatioAndKeepGiven
    if ratio is None and keep is None:
        raise NeitherRatioNorKeep
    if keep is not None and not 0 < keep < 1:
        raise KeepOutOfRange(keep)
    if ratio is not None and not (ratio > 0 and settings.lowest_ratio <= ratio <= settings.highest_ratio):
        raise RatioOutOfRange(ratio, lowest=settings.lowest_ratio, highest=settings.highest_ratio)


def _size(field: str, text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise NotText(field, error.start) from error


@dataclass(frozen=True, slots=True)
class JobTerms:
    """Whose work it is, where several callers want some at once.

    Payers take turns; a trial, which is free, never delays a payer. `deadline_s` counts from when the
    model accepted the work; None, or more than the model's own, is the model's own.
    """

    payer: str = ""
    is_trial: bool = False
    deadline_s: float | None = None


NO_TERMS = JobTerms()


class CompressionModel(Protocol):
    """One compression model, wherever it runs."""

    async def compress(self, request: CompressionRequest, terms: JobTerms = NO_TERMS) -> CompressionResult:
        """Raises a `CompressionError` for what the caller can put right; `CompressorOverloaded`,
        `CompressorUnavailable`, `CompressionTimedOut` or `CompressorFailed` for what the caller cannot."""
        ...


class BuiltModel(CompressionModel, Protocol):
    """One that this process built, and has to close."""

    async def close(self) -> None:
        """End what runs and free what it holds."""
        ...


class Compresses(Protocol):
    """A compressor that works here and now, as `compression.pipeline.pipeline.Compressor` does."""

    def compress(self, request: CompressionRequest) -> CompressionResult: ...


class BoundedModel:
    """A model in this process; `max_waiting` bounds the requests that are in it at once."""

    def __init__(self, max_waiting: int) -> None:
        self._max_waiting = max_waiting
        self._waiting = 0
        self._closed = False

    async def compress(self, request: CompressionRequest, terms: JobTerms = NO_TERMS) -> CompressionResult:
        # They matter only where a model is shared between callers: `compression.workers`.
        del terms
        if self._closed:
            raise CompressorUnavailable("the compressor is shut down")
        if self._waiting >= self._max_waiting:
            raise CompressorOverloaded(f"{self._waiting} compressions are already waiting")
        self._waiting += 1
        try:
            return await self._compress(request)
        finally:
            self._waiting -= 1

    async def _compress(self, request: CompressionRequest) -> CompressionResult:
        raise NotImplementedError


class LocalModel(BoundedModel):
    """A plain compressor in a thread of its own, so that the event loop stays free."""

    def __init__(self, compressor: Compresses, *, max_waiting: int) -> None:
        super().__init__(max_waiting)
        self._compressor = compressor
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="compress")

    async def _compress(self, request: CompressionRequest) -> CompressionResult:
        return await done(self._thread.submit(self._compressor.compress, request))

    async def close(self) -> None:
        self._closed = True
        self._thread.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True, slots=True)
class CompressionFault:
    """A refusal or failure as a value, since exceptions with fields do not survive every process boundary."""

    kind: Literal["refused", "too_long", "overloaded", "unavailable", "timed_out", "failed"]
    message: str
    field: str = "input"

    def error(self) -> Exception:
        """This fault as an exception."""
        if self.kind == "refused":
            return RefusedRequest(self.field, self.message)
        if self.kind == "too_long":
            return TextTooLong(self.field, self.message)
        return _KINDS[self.kind](self.message)


_KINDS: dict[str, type[Exception]] = {
    "overloaded": CompressorOverloaded,
    "unavailable": CompressorUnavailable,
    "timed_out": CompressionTimedOut,
    "failed": CompressorFailed,
}
UNEXPECTED = CompressionFault("failed", "the compressor failed while it worked on this request")


def fault_of(error: Exception) -> CompressionFault:
    """A refusal or failure as a value; an unexpected cause is for the log only."""
    if isinstance(error, CompressionError):
        return CompressionFault(
            "too_long" if isinstance(error, TextTooLong) else "refused", error.message, error.field
        )
    for kind, raised in _KINDS.items():
        if isinstance(error, raised):
            return CompressionFault(kind, str(error))  # type: ignore[arg-type]
    log.error("a compression failed unexpectedly", exc_info=error)
    return UNEXPECTED


async def as_value(work: Awaitable[Value]) -> Value | CompressionFault:
    """The result of a model's work, with refusals and failures as values."""
    try:
        return await work
    except Exception as error:
        return fault_of(error)


async def done(running: Future[Value]) -> Value:
    """The result. When cancelled, it raises at once if the work has not begun, and otherwise when it is over, so that
    the canceller knows that nothing is still running."""
    awaited = asyncio.wrap_future(running)
    try:
        return await asyncio.shield(awaited)
    except asyncio.CancelledError:
        if not running.cancel():
            await asyncio.wait((awaited,))
        if not awaited.cancelled():
            # Retrieved, so that asyncio does not report it as never retrieved.
            awaited.exception()
        raise
