"""What is asked of a compressor and what it answers; and the refusal of what it cannot take."""

from __future__ import annotations

from dataclasses import dataclass

from compression.assembly import Slice
from compression.errors import EmptyInput, InputTooLarge, NotText, RatioOutOfRange
from compression.receipt import Receipt
from compression.settings import CompressionSettings
from compression.units import UnitKind


@dataclass(frozen=True, slots=True)
class CompressionRequest:
    """`target_ratio` is the most that output tokens may be of original tokens. With `explain`, the result says how
    every unit scored.
    """

    query: str
    input: str
    target_ratio: float
    preserve_order: bool = True
    explain: bool = False


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
    """`output` is the concatenation of the slices `kept` of the input, in that order."""

    output: str
    receipt: Receipt
    kept: tuple[Slice, ...]
    unit_scores: tuple[UnitScore, ...] = ()


def check_request(request: CompressionRequest, settings: CompressionSettings) -> None:
    """Raises a `CompressionError` that names the field at fault."""
    ratio = request.target_ratio
    if not (ratio > 0 and settings.lowest_ratio <= ratio <= settings.highest_ratio):
        raise RatioOutOfRange(ratio, lowest=settings.lowest_ratio, highest=settings.highest_ratio)
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


def _size(field: str, text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise NotText(field, error.start) from error
