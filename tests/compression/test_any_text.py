"""Text of every script, and text that no writer would write: compressed, or refused by name, and never a failure."""

from __future__ import annotations

import unicodedata
from functools import cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from compression.choosing.budget import Choice, CutAssembler, may_be_cut, parts_of
from compression.choosing.selection import SelectionSettings
from compression.features.words import WORD, fold, grams, split
from compression.neural.words import find_guards, group_words, join_words, split_words
from compression.pipeline.compression_model import CompressionRequest, CompressionResult
from compression.pipeline.errors import NotText
from compression.pipeline.pipeline import Compressor, Pipeline
from compression.pipeline.spec import CompressionSettings
from compression.scorers.lexical import LexicalScorer
from compression.segmentation import segment
from compression.source.units import join
from tests.compression.conftest import pith_mini

# What changes its length, its neighbours or its direction when it is folded, joined, counted or cut.
ODD = (
    "\u0640",  # the Arabic stroke: folds to nothing
    "\ufe71\u064b",
    "\ufc5e",
    "\u037a",
    "\u0301",
    "a\u0301\u0323",
    "\u0345",
    "\u200d",
    "\ufe0f",
    "ß",
    "ŉ",
    "İ",
    "ﬃ",
    "ﷺ",
    "\u1100\u1161\u11a8",
    "각",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\U0001f1e9\U0001f1ea",
    "\U00020000",
    "\U000e0001\U000e0041",
    "\U0010ffff",
    "\u202e",
    "\u2066",
    "\u2028",
    "\u2029",
    "\x00",
    "\x1c",
    "\x85",
    "\ufeff",
    "\r",
    "\r\n",
    "\n\n",
    "\n",
    " ",
    "\t",
    "\u3000",
    "。",
    "؟",
    "。”",
    '"',
    "“",
    "```\n",
    "\n| a | b |\n|---|---|\n",
    "\n# ",
    "\nA: ",
    "[",
    "{",
    '{"a": "',
    "]",
    "}",
    "\\",
    "\\u",
    "\n    at x\n",
    "Document [1](Title: ",
    "<doc>",
    "1,234.5",
    "http://",
    "not ",
)
TEXT = st.one_of(
    st.text(st.characters(exclude_categories=("Cs",)), max_size=60),
    st.lists(st.one_of(st.sampled_from(ODD), st.text(max_size=4)), max_size=40).map("".join),
    st.lists(st.sampled_from(ODD), max_size=40).map("".join),
)
RATIO = st.one_of(st.just(1.0), st.floats(0.001, 1.0, exclude_min=True))


@cache
def compressor() -> Compressor:
    return Compressor(LexicalScorer.load(), Pipeline(pith_mini(), CompressionSettings()))


def is_true_to(source: str, ratio: float, result: CompressionResult) -> None:
    """The output is slices of the source, and within the ratio or flagged."""
    assert result.output == "".join(source[start:end] for start, end in result.kept)
    codes = {flag.code for flag in result.receipt.risk_flags}
    assert result.receipt.compression_ratio <= ratio or "target_unreachable" in codes
    assert ratio != 1.0 or result.output == source
    for flag in result.receipt.risk_flags:
        assert all(source.startswith(shown.text, shown.start) for shown in flag.examples)


def is_refused(source: str, query: str) -> bool:
    return not source or any("\ud800" <= letter <= "\udfff" for letter in source + query)


@given(TEXT, TEXT, RATIO, st.booleans())
@example("ـ", "ـ", 0.5, True)
@example("كتاب ـــ كتاب. ـ", "ـ", 0.5, True)
@example("a\n\ufe71 \ufc5e", "\u037a", 0.5, False)
@settings(max_examples=120)
def test_any_text_is_compressed_for_any_query(source: str, query: str, ratio: float, in_order: bool) -> None:
    request = CompressionRequest(query, source, ratio, preserve_order=in_order, explain=True)
    if is_refused(source, query):
        with pytest.raises(ValueError, match=r"^(input|query): "):
            compressor().compress(request)
        return
    is_true_to(source, ratio, compressor().compress(request))


@pytest.mark.parametrize("field", ["input", "query"])
def test_half_of_a_surrogate_pair_is_refused_by_its_place(field: str) -> None:
    texts = {"input": "A text.", "query": "A question?"}
    texts[field] = "ab\ud800"
    with pytest.raises(NotText, match=f"{field}: the character at position 2 is half of a surrogate pair"):
        compressor().compress(CompressionRequest(texts["query"], texts["input"], 0.5))


def every_character() -> list[str]:
    """Whatever Unicode has given a meaning, private use and surrogates apart, in runs of 64 code points."""
    runs = []
    for first in range(0, 0x110000, 64):
        found = [chr(code) for code in range(first, first + 64)]
        known = [letter for letter in found if unicodedata.category(letter) not in ("Cn", "Co", "Cs")]
        runs += ["".join(known)] if known else []
    return runs


@pytest.mark.long
def test_every_character_of_every_script_is_compressed() -> None:
    """Alone and beside its neighbours, in the text and in the query."""
    runs = every_character()
    assert sum(map(len, runs)) > 140_000
    for at in range(0, len(runs), 40):
        block = runs[at : at + 40]
        source = "\n\n".join(f"{' '.join(run)} {run}." for run in block)
        request = CompressionRequest(" ".join(block[at % len(block)]), source, 0.5)
        is_true_to(source, 0.5, compressor().compress(request))


def test_no_word_folds_to_nothing() -> None:
    for code in range(0x110000):
        if WORD.fullmatch(letter := chr(code)):
            assert fold(letter).strip() and fold(2 * letter).strip() and grams(fold(letter))


@given(TEXT)
def test_words_stand_where_they_are_said_to_and_fold_to_something(text: str) -> None:
    for word, start in zip(*split(text), strict=True):
        assert text.startswith(word, start)
        assert fold(word).strip() and grams(fold(word))


@given(TEXT, st.randoms(use_true_random=False), st.floats(0.1, 0.9))
def test_any_text_is_cut_inside_its_units_too(source: str, chance: object, ratio: float) -> None:
    """As a token classifier cuts: some words of each unit go, whatever they are."""
    text = segment(source)
    cuttable = may_be_cut(text)
    spans: list[tuple[int, int]] = []
    for at, unit in enumerate(text.units):
        words = split_words(source, (unit.start, unit.end), range(unit.start, unit.end))
        groups = group_words(words, find_guards(source[unit.start : unit.end]))
        assert sum(group.last - group.first for group in groups) == len(words)
        if cuttable[at] and words:
            spans += join_words(source, words, [chance.random() < 0.6 for _ in words])  # type: ignore[attr-defined]
    scores = [0.5] * len(text.units)
    budget = int(pith_mini().count(source) * ratio)
    cut = CutAssembler(text, parts_of(text, spans))
    slices = Choice(text, scores).slices(cut, budget, pith_mini(), SelectionSettings())
    assert pith_mini().count(join(source, slices)) <= budget
