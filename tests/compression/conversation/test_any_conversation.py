"""Whatever conversation comes in, and however it is scored, one comes out."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from compression.assembly import join
from compression.bm25 import BM25Scorer
from compression.compressor import Compressor
from compression.lexical import LexicalScorer
from compression.request import CompressionRequest
from compression.segmentation import SegmentationSettings
from compression.settings import CompressionSettings
from compression.tokenizer_counter import TokenizerCounter
from tests.compression.conftest import TOKENIZER
from tests.compression.conversation.chats import MESSAGES, ChanceScorer, is_conversation_still

RATIO = st.one_of(st.just(1.0), st.floats(0.001, 1.0, exclude_min=True), st.floats(0.1, 0.7))


@cache
def counter() -> TokenizerCounter:
    return TokenizerCounter.from_file(TOKENIZER, name="pith-mini")


@cache
def lexical() -> LexicalScorer:
    return LexicalScorer.load()


@given(
    MESSAGES,
    RATIO,
    st.booleans(),
    st.sampled_from([None, 1]),
    st.booleans(),
    st.sampled_from(["chance", "bm25", "lexical"]),
    st.sampled_from([7, 30, 32_768]),
    st.booleans(),
    st.booleans(),
    st.randoms(use_true_random=False),
)
@settings(max_examples=250, deadline=None)
def test_a_conversation_in_is_a_conversation_out(
    messages: list[Any],
    ratio: float,
    in_order: bool,
    indent: int | None,
    ascii_only: bool,
    scored: str,
    most_units: int,
    has_body: bool,
    mark_gaps: bool,
    chance: Any,
) -> None:
    value = (
        {"model": "m", "tools": [{"name": "a"}, {"name": "b"}], "messages": messages, "n": 1}
        if has_body
        else messages
    )
    source = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    scorer = {"chance": ChanceScorer(chance), "bm25": BM25Scorer(), "lexical": None}[scored] or lexical()
    fine = CompressionSettings(segmentation=SegmentationSettings(most_units=most_units))
    request = CompressionRequest(
        "Which order was booked?", source, ratio, preserve_order=in_order, explain=True, mark_gaps=mark_gaps
    )
    result = Compressor(scorer, counter(), fine).compress(request)
    left = is_conversation_still(source, messages, result, has_marks=mark_gaps)
    assert result.output == join(source, result.kept) or mark_gaps
    assert ratio != 1.0 or result.output == source
    codes = {flag.code for flag in result.receipt.risk_flags}
    assert "json_invalid" not in codes
    if "target_unreachable" in codes:
        # No more than the brackets is put out where they do not fit.
        assert not left
    else:
        assert result.receipt.compression_ratio <= ratio
    for flag in result.receipt.risk_flags:
        assert all(source.startswith(shown.text, shown.start) for shown in flag.examples)
    for unit in result.unit_scores:
        assert 0 <= unit.start < unit.end <= len(source)
