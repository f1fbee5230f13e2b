from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from compression.choosing.budget import budget_for
from compression.choosing.protection import Protection
from compression.choosing.selection import SelectionSettings
from compression.pipeline.compression_model import CompressionRequest, CompressionResult, check_request
from compression.pipeline.errors import (
    EmptyInput,
    InputTooLarge,
    KeepOutOfRange,
    NeitherRatioNorKeep,
    NotCalibrated,
    NotText,
    RatioAndKeepGiven,
    RatioOutOfRange,
    ScoresMismatch,
)
from compression.pipeline.pipeline import Compressor, Pipeline
from compression.pipeline.spec import CompressionSettings
from compression.source.token_counter import FakeCounter, TokenizerCounter
from compression.source.units import Segmentation

Compress = Callable[..., CompressionResult]

BLOCKS = st.sampled_from(
    [
        "Document [1](Title: Budget) The committee met. It cut the budget by 4%. Nobody objected.\n",
        "Document [2](Title: Nile) The Nile is a river. It is long.\n",
        "# Heading\n\nText under it. More text.\n\n",
        "Ann: I think not.\nBob: Why?\nAnn: It never works.\n",
        "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n\n",
        "a,b,c\n1,2,3\n4,5,6\n\n",
        "```python\nx = 1\n\nprint(x)\n```\n",
        "- item one\n- item two\n",
        '{"a": 1, "b": ["c", "d"]}\n',
        "他来了。她走了。\n",
        "مرحبا. كيف؟\n",
        "\r\n",
        "\n\n\n\n",
        "   ",
        "\0",
        "word " * 30,
        "x" * 90,
        "“One. Two. Three.” ",
        "---\n",
        "<doc>\n",
        "</doc>\n",
        "👨‍👩‍👧 ok. ",
    ]
)
SOURCES = st.lists(BLOCKS, min_size=1, max_size=14).map("".join) | st.text(min_size=1, max_size=300)


def codes(result: CompressionResult) -> set[str]:
    return {flag.code for flag in result.receipt.risk_flags}


@given(
    SOURCES,
    st.floats(0.005, 1.0),
    st.booleans(),
    st.sets(st.sampled_from(["code", "tables", "json", "headings", "numbers", "urls", "quotes"]), max_size=2),
    st.booleans(),
)
@example("The one sentence that there is goes on for a while.", 0.5, True, set(), True)
@example("   ", 0.5, True, set(), True)
# In another order the same pieces need not be as many tokens.
@example(
    'Document [1](Title: A) x.\n\nDocument [2](Title: B) 4% he.\n"Document [3](Title: C) z.\n',
    0.97,
    False,
    set(),
    True,
)
def test_what_holds_for_every_compression(
    compress: Compress,
    counter: TokenizerCounter,
    source: str,
    ratio: float,
    preserve_order: bool,
    protections: set[Protection],
    keep_titles: bool,
) -> None:
    settings = CompressionSettings(
        protections=frozenset(protections), selection=SelectionSettings(keep_titles=keep_titles)
    )
    result = compress(source, ratio, settings=settings, preserve_order=preserve_order)
    receipt = result.receipt
    assert result.output == "".join(source[start:end] for start, end in result.kept)
    assert receipt.output_tokens == counter.count(result.output)
    assert receipt.original_tokens == counter.count(source)
    assert receipt.tokens_saved == receipt.original_tokens - receipt.output_tokens
    if receipt.compression_ratio > ratio:
        assert "target_unreachable" in codes(result) and protections
    if preserve_order:
        ends = [0, *(end for _, end in result.kept)]
        assert all(start >= end for (start, _), end in zip(result.kept, ends, strict=False))
    again = compress(source, ratio, settings=settings, preserve_order=preserve_order)
    assert (again.output, again.kept, again.receipt.risk_flags) == (
        result.output,
        result.kept,
        receipt.risk_flags,
    )
    for flag in receipt.risk_flags:
        assert flag.count >= 1 and len(flag.examples) <= 3
        assert all(source[e.start : e.end].startswith(e.text) for e in flag.examples)


@given(st.text(min_size=1, max_size=300), st.booleans())
def test_a_ratio_of_one_gives_the_input_back(compress: Compress, source: str, preserve_order: bool) -> None:
    result = compress(source, 1.0, preserve_order=preserve_order)
    assert result.output == source
    assert result.receipt.compression_ratio == 1.0 and result.kept == ((0, len(source)),)


@given(st.integers(1, 5000), st.floats(0.0001, 1.0))
def test_a_budget_is_the_most_that_the_ratio_allows(original: int, ratio: float) -> None:
    budget = budget_for(original, ratio)
    assert budget == 0 or budget / original <= ratio
    assert (budget + 1) / original > ratio - 1e-9


def test_the_output_comes_close_to_the_budget(compress: Compress) -> None:
    source = " ".join(f"Sentence number {number} speaks of matter {number % 7}." for number in range(400))
    for ratio in (0.5, 0.2, 0.1, 0.05):
        receipt = compress(source, ratio).receipt
        assert ratio - 14 / receipt.original_tokens <= receipt.compression_ratio <= ratio


def test_a_title_comes_with_its_document(compress: Compress) -> None:
    source = "\n".join(
        f"Document [{number}](Title: Topic {number}) First fact {number}. Second fact {number}."
        for number in range(20)
    )
    kept = compress(source, 0.06, marked=["Second fact 7."]).output
    assert kept.startswith("Document [7](Title: Topic 7)") and kept.endswith("Second fact 7.")
    settings = CompressionSettings(selection=SelectionSettings(keep_titles=False))
    assert "Topic 7)" not in compress(source, 0.05, marked=["Second fact 7."], settings=settings).output


def test_without_order_documents_go_by_relevance_and_sentences_do_not(compress: Compress) -> None:
    source = "\n".join(
        f"Document [{number}](Title: T{number}) First of {number}. Then of {number}. Last of {number}."
        for number in range(9)
    )
    output = compress(source, 0.5, marked=["Then of 6", "Then of"], preserve_order=False).output
    assert output.startswith("Document [6](Title: T6)")
    for number in range(9):
        first, then = output.find(f"First of {number}."), output.find(f"Then of {number}.")
        assert first < 0 or then < 0 or first < then


def test_without_order_paragraphs_go_by_relevance(compress: Compress) -> None:
    source = "\n\n".join(f"Paragraph {number} begins. It says thing {number}." for number in range(10))
    output = compress(source, 0.5, marked=["thing 8", "thing"], preserve_order=False).output
    assert output.index("thing 8") < output.index("thing 0")
    assert "\n\n" in output


def test_table_rows_keep_their_header(compress: Compress) -> None:
    rows = "".join(f"| city{number} | {number} |\n" for number in range(60))
    output = compress(f"| name | people |\n|---|---|\n{rows}", 0.2, marked=["city33 "]).output
    assert output.startswith("| name | people |\n|---|---|\n|") and "city33" in output


def test_protected_units_stay_and_may_break_the_budget(compress: Compress) -> None:
    source = " ".join(
        f"It cost {number} euros." if number % 2 else "It was nice there." for number in range(60)
    )
    result = compress(source, 0.1, settings=CompressionSettings(protections=frozenset({"numbers"})))
    assert all(f"It cost {number} euros." in result.output for number in range(1, 60, 2))
    assert "target_unreachable" in codes(result)


@pytest.mark.parametrize("source", ["one sentence with nine words in it here", "x" * 500, "他来了" * 50])
def test_a_single_unit_is_cut_where_nothing_smaller_fits(compress: Compress, source: str) -> None:
    result = compress(source, 0.5)
    assert source.startswith(result.output) and 0 < result.receipt.compression_ratio <= 0.5


def test_a_better_unit_takes_the_place_of_worse_ones(compress: Compress) -> None:
    source = "alpha beta gamma delta and some more words of little use here. alpha small. nothing small."
    assert "gamma" in compress(source, 0.75, marked=["alpha", "beta", "gamma"]).output


def test_explanations_name_every_unit(compress: Compress) -> None:
    source = "First thing. Second thing. Third thing. Fourth thing."
    result = compress(source, 0.5, marked=["Third"], explain=True)
    assert [source[unit.start : unit.end] for unit in result.unit_scores if unit.score == 1.0] == [
        "Third thing."
    ]
    assert [unit.kept for unit in result.unit_scores].count(True) == 2


@pytest.mark.parametrize("ratio", [0.0, -0.1, 1.0001, math.nan, math.inf])
def test_a_ratio_out_of_range_is_refused(compress: Compress, ratio: float) -> None:
    with pytest.raises(
        RatioOutOfRange, match=r"compression\.target_ratio: must be greater than 0 and at most 1"
    ):
        compress("Some text.", ratio)


@pytest.mark.parametrize(
    ("ratio", "keep", "error"),
    [
        (None, 0.0, KeepOutOfRange),
        (None, 1.0, KeepOutOfRange),
        (None, math.nan, KeepOutOfRange),
        (0.5, 0.9, RatioAndKeepGiven),
        (None, None, NeitherRatioNorKeep),
    ],
)
def test_one_of_ratio_and_promise_is_asked_for(
    ratio: float | None, keep: float | None, error: type[Exception]
) -> None:
    with pytest.raises(error):
        check_request(CompressionRequest("q", "text", ratio, keep=keep), CompressionSettings())


def test_a_promise_that_no_calibration_stands_behind_is_refused(compress: Compress) -> None:
    with pytest.raises(NotCalibrated, match=r"compression\.keep: this model has no calibration"):
        compress("Some text. More text.", None, keep=0.9)


def test_bounds_of_a_model_are_named(compress: Compress) -> None:
    with pytest.raises(RatioOutOfRange, match=r"at least 0\.1 and at most 0\.9, not 0\.05"):
        compress("Some text.", 0.05, settings=CompressionSettings(lowest_ratio=0.1, highest_ratio=0.9))


def test_input_that_cannot_be_taken_is_refused_by_name(compress: Compress) -> None:
    small = CompressionSettings(longest_input_bytes=10, longest_query_chars=5)
    with pytest.raises(EmptyInput, match="input: must hold at least one character"):
        compress("")
    with pytest.raises(InputTooLarge, match="input: holds 12 bytes; the limit is 10"):
        compress("é" * 6, settings=small)
    with pytest.raises(InputTooLarge, match="query: holds 6 characters; the limit is 5"):
        compress("text", query="longer", settings=small)
    with pytest.raises(NotText, match="input: the character at position 3 is half of a surrogate pair"):
        compress("abc\ud800")


@pytest.mark.parametrize("scores", [[], [0.1], [math.nan, 0.0]])
def test_scores_that_cannot_be_are_our_fault(scores: list[float]) -> None:
    class BrokenScorer:
        """A fake that answers with the wrong scores."""

        def score(self, query: str, text: Segmentation) -> Sequence[float]:
            del query, text
            return scores

    with pytest.raises(ScoresMismatch):
        Compressor(BrokenScorer(), Pipeline(FakeCounter(), CompressionSettings())).compress(
            CompressionRequest("q", "One sentence. Two sentences.", 0.5)
        )


def test_latency_is_what_the_clock_says() -> None:
    class ZeroScorer:
        """A fake to which nothing matters."""

        def score(self, query: str, text: Segmentation) -> Sequence[float]:
            del query
            return [0.0] * len(text.units)

    times = iter([10.0, 10.25])
    compressor = Compressor(
        ZeroScorer(), Pipeline(FakeCounter(), CompressionSettings(), clock=lambda: next(times))
    )
    result = compressor.compress(CompressionRequest("q", "One sentence. Two sentences.", 0.5))
    assert result.receipt.latency_ms == 250.0 and result.receipt.tokenizer == "fake-words"
