"""Several sizes of one compression: what a text becomes at other ratios, from scores that were computed once."""

import math
from dataclasses import dataclass

from compression.choosing.assembly import Slice
from compression.pipeline.errors import RefusedRequest
from compression.pipeline.receipt import Receipt

MAX_SIZES = 64
# Each size is chosen anew, and all are one request.
LONGEST_SIZED_BYTES = 200_000
# Units of the text times sizes: what a size costs grows with the units, and lines of one letter are units too.
MOST_SIZED_UNITS = 200_000


# So many sizes more take about as much CPU time as the compression without them.
SIZES_OF_A_REQUEST = 16


@dataclass(frozen=True, slots=True)
class Size:
    """How much is kept: one of a ratio and a promise, and the other is None."""

    target_ratio: float | None = None
    keep: float | None = None


@dataclass(frozen=True, slots=True)
class Sized:
    """What is kept at another size, in the order of the output, with the receipt that the size asked for by itself
    has. The receipt's latency is that of choosing this size alone."""

    receipt: Receipt
    kept: tuple[Slice, ...]


def as_requests(sizes: int) -> int:
    """How many compressions take as long as one with so many sizes."""
    return 1 + math.ceil(sizes / SIZES_OF_A_REQUEST)


def check_units(units: int, sizes: int) -> None:
    """Raises `RefusedRequest` where a text in so many units cannot be told of at so many sizes."""
    most = MOST_SIZED_UNITS // max(units, 1)
    if sizes > most:
        raise RefusedRequest(
            "sizes", f"the input has {units:,} units, so at most {most} sizes can be asked for, not {sizes}"
        )
