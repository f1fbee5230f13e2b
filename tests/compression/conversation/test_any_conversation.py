"""Whatever conversation comes in, and however it is scored, one comes out."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compression.choosing.budget import Choice, CutAssembler, may_be_cut, parts_of
from compression.choosing.selection import SelectionSettings
from compression.conversation import spans_by_message
from compression.neural.words import join_words, split_words
from compression.pipeline.compression_model import CompressionRequest
from compression.pipeline.pipeline import Compressor, Pipeline
from compression.pipeline.spec import CompressionSettings
from compression.scorers.lexical import BM25Scorer, LexicalScorer
from compression.segmentation import SegmentationSettings, segment
from compression.source.units import join
from tests.compression.conftest import pith_mini
from tests.compression.conversation.chats import MESSAGES, ChanceScorer, bare, is_conversation_still, pairs

RATIO = st.one_of(st.just(1.0), st.floats(0.001, 1.0, exclude_min=True), st.floats(0.1, 0.7))


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
@settings(max_examples=100)
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
    result = Compressor(scorer, Pipeline(pith_mini(), fine)).compress(request)
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


@pytest.mark.parametrize("empty", ["[]", "{}"])
@pytest.mark.parametrize("ratio", [0.1, 0.5, 0.9])
def test_a_message_of_empty_json_is_within_the_ratio_or_left_out(empty: str, ratio: float) -> None:
    source = json.dumps([{"role": "system", "content": empty}])
    compressor = Compressor(BM25Scorer(), Pipeline(pith_mini(), CompressionSettings()))
    result = compressor.compress(CompressionRequest("Which?", source, ratio))
    assert json.loads(result.output) == [] or result.receipt.compression_ratio <= ratio


@given(MESSAGES, st.floats(0.05, 0.9), st.booleans(), st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_a_conversation_whose_sentences_are_cut_is_one_still(
    messages: list[Any], ratio: float, ascii_only: bool, chance: Any
) -> None:
    """As a token classifier cuts: some words of each sentence go, never a piece of JSON."""
    source = json.dumps(messages, ensure_ascii=ascii_only)
    text = segment(source)
    spans: list[tuple[int, int]] = []
    for unit, is_loose in zip(text.units, may_be_cut(text), strict=True):
        words = (
            split_words(text.source, (unit.start, unit.end), range(unit.start, unit.end)) if is_loose else []
        )
        spans += join_words(text.source, words, [chance.random() < 0.6 for _ in words])
    scores = [chance.random() for _ in text.units]
    cut = CutAssembler(text, parts_of(text, spans))
    budget = int(pith_mini().count(source) * ratio)
    slices = Choice(text, scores).slices(cut, budget, pith_mini(), SelectionSettings())
    kept = tuple(text.raw_slices(slices))
    left = json.loads(join(source, kept))
    numbers = [message.index for message in spans_by_message(source, kept)]
    assert [bare(message) for message in left] == [bare(messages[number]) for number in numbers]
    assert all((call in numbers) == (answer in numbers) for call, answer in pairs(messages))
    assert not left or pith_mini().count(join(source, kept)) <= budget
