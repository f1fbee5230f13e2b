"""What a text becomes at other sizes: which requests may ask, and how it is said."""

from collections.abc import Sequence
from typing import Any

from compression.pipeline.errors import RefusedRequest
from compression.pipeline.request import LONGEST_SIZED_BYTES, Sized
from serve.compressors.compressor import ServedCompressor
from serve.compressors.receipt_json import receipt_fields


def check_sizes(served: ServedCompressor, field: str, size: int) -> None:
    """Raises `RefusedRequest` where other sizes cannot be told of: `size` is the context's, in bytes."""
    if not served.offers_sizes:
        raise RefusedRequest("sizes", "this model chooses words anew for each size; ask for one at a time")
    if field == "messages":
        raise RefusedRequest("sizes", "are for input; for messages, ask for one at a time")
    if size > LONGEST_SIZED_BYTES:
        raise RefusedRequest(
            "sizes", f"the input holds {size:,} bytes; with sizes the limit is {LONGEST_SIZED_BYTES:,}"
        )


def sized_fields(sizes: Sequence[Sized]) -> list[dict[str, Any]]:
    """The response's `sizes`, in the order of the request's. Offsets are code points of the input."""
    return [
        {"kept": [(start, end) for start, end in one.kept], "receipt": receipt_fields(one.receipt)}
        for one in sizes
    ]
