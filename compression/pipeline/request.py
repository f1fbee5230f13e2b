"""What is asked of a compressor and what it answers; and the checks of a request."""

from dataclasses import dataclass

from compression.choosing.assembly import Slice
from compression.pipeline.errors import (
    EmptyInput,
    InputTooLarge,
    KeepOutOfRange,
    NeitherRatioNorKeep,
    NotText,
    RatioAndKeepGiven,
    RatioOutOfRange,
)
from compression.pipeline.receipt import Receipt
from compression.pipeline.settings import CompressionSettings
from compression.pipeline.sizes import Size, Sized
from compression.source.units import UnitKind


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
    """How much `input[start:end]` matters to the query, and whether it was kept."""

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
