"""Vectors as the JSON of an `embeddings` reply, some at a time: thousands of them are megabytes."""

import base64
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import orjson

from models.retrieval import Computed

# Numbers that are written at a time: about a millisecond.
_NUMBERS_AT_ONCE = 16_384


def embedding_items(computed: Computed, encoding: Literal["float", "base64"]) -> Iterator[bytes]:
    """The items of `data` with commas between them, some at a time."""
    rows = np.frombuffer(computed.data, "<f4").reshape(-1, computed.width)
    step = max(1, _NUMBERS_AT_ONCE // computed.width)
    for start in range(0, len(rows), step):
        some = [_item(start + at, row, encoding) for at, row in enumerate(rows[start : start + step])]
        written = orjson.dumps(some, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1]
        yield written if start == 0 else b"," + written


def _item(index: int, row: Any, encoding: Literal["float", "base64"]) -> dict[str, Any]:
    # orjson writes a float32 with the digits that it needs.
    value = row if encoding == "float" else base64.b64encode(row.tobytes()).decode()
    return {"object": "embedding", "index": index, "embedding": value}
