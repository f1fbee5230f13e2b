"""What crosses a worker's socket comes out as it went in."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compression.calibration.estimate import Calibration
from compression.flags import Example, Flag
from compression.pipeline.compression_model import (
    CompressionFault,
    CompressionRequest,
    CompressionResult,
    Receipt,
    UnitScore,
)
from compression.pipeline.errors import (
    CompressionTimedOut,
    CompressorFailed,
    CompressorOverloaded,
    CompressorUnavailable,
    RefusedRequest,
)
from compression.source.units import Slice
from compression.workers.messages import (
    Compress,
    Compressed,
    Count,
    Counted,
    Done,
    Failed,
    Frame,
    Job,
    done_of,
    job_of,
    packed,
    read,
    read_from,
)

FLAG = Flag("negation_dropped", "critical", 4, (Example(3, 9, "no \U0001f600 é"), Example(10, 11, "\x00")))
RECEIPT = Receipt(100, 40, 0.5, 12.25, "mini", (FLAG, Flag("query_missing", "warning", 1)))
PROMISED = Receipt(100, 40, None, 12.25, "mini", (), 0.95, 0.41, 0.5, Calibration("lexical-1", "0" * 64))
RESULT = CompressionResult(
    "out \U0001f600\x00",
    RECEIPT,
    (Slice(0, 4), Slice(2**40, 2**40 + 1)),
    (UnitScore(0, 4, "turn", 0.5, True),),
)


def sent(message: Job | Done) -> bytes:
    """Through a socket; what does not fit into its buffer at once is not tried here."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(Frame(7, packed(message)).packed())
        found = read_from(theirs)
    assert found is not None and found.number == 7
    return found.payload


any_text = st.text(max_size=50)


@given(any_text, any_text, st.floats(allow_nan=False), st.booleans(), st.booleans())
def test_any_request_comes_out_as_it_went_in(
    query: str, text: str, ratio: float, preserve_order: bool, explain: bool
) -> None:
    for request in (
        CompressionRequest(query, text, ratio, preserve_order, explain),
        CompressionRequest(query, text, None, preserve_order, explain, keep=0.95, mark_gaps=True),
    ):
        assert job_of(sent(Compress(request))) == Compress(request)
    assert job_of(sent(Count(text))) == Count(text)


def test_a_result_comes_out_as_it_went_in() -> None:
    for result in (RESULT, replace(RESULT, receipt=PROMISED)):
        assert done_of(sent(Compressed(result))) == Compressed(result)
    assert done_of(sent(Counted(7))) == Counted(7)


def test_scores_may_be_numbers_of_numpy() -> None:
    found = replace(RESULT.unit_scores[0], score=np.float32(0.5), kept=np.bool_(True))
    assert done_of(sent(Compressed(replace(RESULT, unit_scores=(found,))))) == Compressed(RESULT)


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("overloaded", CompressorOverloaded),
        ("unavailable", CompressorUnavailable),
        ("timed_out", CompressionTimedOut),
        ("failed", CompressorFailed),
    ],
)
def test_a_fault_comes_out_as_its_error(kind: str, error: type[Exception]) -> None:
    with pytest.raises(error, match="why"):
        done_of(sent(Failed(CompressionFault(kind, "why"))))  # type: ignore[arg-type]


def test_a_refusal_keeps_its_field() -> None:
    with pytest.raises(RefusedRequest) as refused:
        done_of(sent(Failed(CompressionFault("refused", "is bad", "query"))))
    assert (refused.value.field, refused.value.message) == ("query", "is bad")


@pytest.mark.parametrize("cut", [0, 2, 10, 60])
async def test_a_message_that_breaks_off_is_none(cut: int) -> None:
    beginning = Frame(7, packed(Compress(CompressionRequest("q", "i" * 100, 0.5)))).packed()[:cut]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(beginning)
        ours.shutdown(socket.SHUT_WR)
        assert read_from(theirs) is None
    reader = asyncio.StreamReader()
    reader.feed_data(beginning)
    reader.feed_eof()
    assert await read(reader) is None
