"""What crosses a worker's socket comes out as it went in."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compression.calibration.estimate import Calibration
from compression.flags import Example, Flag
from compression.pipeline.errors import (
    CompressionTimedOut,
    CompressorFailed,
    CompressorOverloaded,
    CompressorUnavailable,
    RefusedRequest,
)
from compression.pipeline.request import CompressionRequest, CompressionResult, Receipt, UnitScore
from compression.pipeline.served import CompressionFault
from compression.source.units import Slice
from compression.workers.messages import (
    Message,
    count_message,
    fault_message,
    read,
    read_from,
    request_message,
    request_of,
    result_message,
    result_of,
    text_of,
    tokens_message,
    tokens_of,
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


def sent(message: Message) -> Message:
    """Through a socket; what does not fit into its buffer at once is not tried here."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(message.packed())
        found = read_from(theirs)
    assert found is not None
    return found


# Lone surrogates too: they are refused by name, and only after they have come through.
any_text = st.text(st.characters(exclude_categories=()), max_size=50)


@given(any_text, any_text, st.floats(), st.booleans(), st.booleans())
def test_any_request_comes_out_as_it_went_in(
    query: str, text: str, ratio: float, preserve_order: bool, explain: bool
) -> None:
    if ratio != ratio or ratio in (float("inf"), float("-inf")):
        ratio = 0.5
    request = CompressionRequest(query, text, ratio, preserve_order, explain)
    assert request_of(sent(request_message(request))) == request
    request = CompressionRequest(query, text, None, preserve_order, explain, keep=0.95, mark_gaps=True)
    assert request_of(sent(request_message(request))) == request


@given(any_text)
def test_any_text_to_count_comes_out_as_it_went_in(text: str) -> None:
    assert text_of(sent(count_message(text))) == text


def test_a_result_comes_out_as_it_went_in() -> None:
    assert result_of(sent(result_message(RESULT))) == RESULT
    promised = replace(RESULT, receipt=PROMISED)
    assert result_of(sent(result_message(promised))) == promised
    assert tokens_of(sent(tokens_message(7))) == 7


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
    message = sent(fault_message(CompressionFault(kind, "why")))  # type: ignore[arg-type]
    for read_answer in (result_of, tokens_of):
        with pytest.raises(error, match="why"):
            read_answer(message)


def test_a_refusal_keeps_its_field() -> None:
    with pytest.raises(RefusedRequest) as refused:
        result_of(sent(fault_message(CompressionFault("refused", "is bad", "query"))))
    assert (refused.value.field, refused.value.message) == ("query", "is bad")


@pytest.mark.parametrize("cut", [0, 2, 10, 60])
async def test_a_message_that_breaks_off_is_none(cut: int) -> None:
    packed = request_message(CompressionRequest("q", "i" * 100, 0.5)).packed()[:cut]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(packed)
        ours.shutdown(socket.SHUT_WR)
        assert read_from(theirs) is None
    reader = asyncio.StreamReader()
    reader.feed_data(packed)
    reader.feed_eof()
    assert await read(reader) is None
