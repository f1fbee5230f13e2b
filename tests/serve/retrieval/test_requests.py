"""The forms in which vectors are written."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from models.embedding_backends import Computed
from serve.retrieval.requests import embedding_items


@given(
    rows=arrays(
        "<f4", st.tuples(st.integers(1, 4), st.integers(1, 40)), elements=st.floats(-1e3, 1e3, width=32)
    )
)
def test_both_encodings_say_the_same_numbers(rows: Any) -> None:
    computed = Computed(1, rows.shape[1], rows.tobytes())
    written = {
        encoding: json.loads(b"[" + b"".join(embedding_items(computed, encoding)) + b"]")
        for encoding in ("float", "base64")
    }
    decoded = [np.frombuffer(base64.b64decode(item["embedding"]), "<f4") for item in written["base64"]]
    assert np.array_equal(np.stack(decoded), rows)
    assert np.array_equal(np.array([item["embedding"] for item in written["float"]], "<f4"), rows)
    assert [item["index"] for item in written["float"]] == list(range(len(rows)))
