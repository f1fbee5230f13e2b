"""Inputs that broke other compressors, or could break this one, and proof that none costs more than its size."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.limits.inputs import HOSTILE
from compression.pipeline.compression_model import CompressionResult
from compression.segmentation import segment

Compress = Callable[..., CompressionResult]


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("ratio", [0.05, pytest.param(0.5, marks=pytest.mark.long)])
def test_a_nasty_input_is_compressed_within_its_budget(compress: Compress, name: str, ratio: float) -> None:
    source = HOSTILE[name](6000)
    for preserve_order in (True, False):
        result = compress(source, ratio, preserve_order=preserve_order)
        assert result.receipt.compression_ratio <= ratio
        assert result.output == "".join(source[start:end] for start, end in result.kept)
    assert compress(source, 1.0).output == source


def test_a_megabyte_on_one_line(compress: Compress) -> None:
    source = "The quick brown fox jumps over 7 lazy dogs. " * 23_000 + "The budget was cut by 4 percent."
    result = compress(source, 0.01, query="By how much was the budget cut?")
    assert "The budget was cut by 4 percent." in result.output
    assert result.receipt.compression_ratio <= 0.01


def test_fifty_thousand_blank_lines_are_not_kept_for_their_own_sake(compress: Compress) -> None:
    source = "The budget was cut." + "\n" * 50_000 + "The committee met."
    result = compress(source, 0.5)
    assert result.output == "The budget was cut.\n\nThe committee met."


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name",
    [
        "dots",
        "spaced dots",
        "white space",
        "pipes",
        "backslashes",
        "an open title",
        "combining marks",
        "nested quotes",
        "a line of capitals over a trace",
        "a dotted name over a trace",
        "a trace that ends in capitals",
        "a rule of spaces under a bar",
        "a rule with spaces after it",
        "dots in a JSON string",
        "a fence of tildes",
        "JSON that is no JSON at its end",
    ],
)
def test_no_pattern_reads_the_same_text_again_and_again(name: str) -> None:
    """What happens inside a regular expression is no call: the square of this length would take hours."""
    segment(HOSTILE[name](500_000))
