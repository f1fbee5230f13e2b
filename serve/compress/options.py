"""What a request asks for: its own options, else its batch's, else the model's."""

from collections.abc import Callable
from typing import TypeVar

from compression.pipeline.request import CompressionRequest, Size
from serve.compress.request import Asked, CompressInput, CompressOptions, CompressRequest
from serve.compressors.size_options import SizeOptions

Value = TypeVar("Value")


def request_of(item: CompressInput, shared: Asked | None, *, default_ratio: float) -> CompressionRequest:
    """A ratio and a promise exclude each other: who says either leaves nothing of the batch's."""
    said = [
        asked.compression for asked in (item, shared) if asked is not None and asked.compression is not None
    ]
    ratio, keep = _first(said, _size_of) or (default_ratio, None)
    in_order = _first(said, lambda options: options.preserve_order)
    return CompressionRequest(
        query=item.query,
        input=item.context,
        target_ratio=ratio,
        preserve_order=True if in_order is None else in_order,
        keep=keep,
        mark_gaps=_first(said, lambda options: options.mark_gaps) or False,
        sizes=tuple(Size(size.target_ratio, size.keep) for size in _sizes_of(item)),
    )


def _sizes_of(item: CompressInput) -> list[SizeOptions]:
    return (item.sizes or []) if isinstance(item, CompressRequest) else []


def retain_s_of(item: CompressInput, shared: Asked | None) -> int:
    """Seconds for which the original is to be kept; 0: not at all."""
    said = [
        asked.compression for asked in (item, shared) if asked is not None and asked.compression is not None
    ]
    return _first(said, lambda options: options.retain_s) or 0


def wants_spans(item: CompressInput, shared: Asked | None) -> bool:
    """Whether the response is to include the positions of the parts kept."""
    said = [asked.include for asked in (item, shared) if asked is not None and asked.include is not None]
    return bool(said) and "spans" in said[0]


def _size_of(options: CompressOptions) -> tuple[float | None, float | None] | None:
    if options.target_ratio is None and options.keep is None:
        return None
    return options.target_ratio, options.keep


def _first(said: list[CompressOptions], value_of: Callable[[CompressOptions], Value | None]) -> Value | None:
    return next((value for options in said if (value := value_of(options)) is not None), None)
