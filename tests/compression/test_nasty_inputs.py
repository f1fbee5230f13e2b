"""Inputs that broke other compressors, or could break this one, and proof that none costs more than its size."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from types import FrameType

import pytest

from compression.request import CompressionResult
from compression.segmentation import segment

Compress = Callable[..., CompressionResult]


def random_text(size: int) -> str:
    source = random.Random(7)
    ranges = [
        (0, 0x250),
        (0x590, 0x9FF),
        (0xE00, 0x10FF),
        (0x2000, 0x30FF),
        (0x4E00, 0x9FFF),
        (0x1F300, 0x1FAFF),
    ]
    return "".join(chr(source.randint(*source.choice(ranges))) for _ in range(size))


# Each makes an input of about `size` characters.
NASTY: dict[str, Callable[[int], str]] = {
    "no white space": lambda size: "a" * size,
    "one long line": lambda size: "The quick brown fox jumps 7 times. " * (size // 35),
    "Chinese without spaces": lambda size: "黑豹队的防守只丢了分。" * (size // 11),
    "right to left": lambda size: "هذا نص عربي. وهذه جملة أخرى؟ " * (size // 29),
    "joined emoji": lambda size: "👨‍👩‍👧‍👦👩🏽‍🚀" * (size // 11),
    "NULs": lambda size: "a\0b. \0\0C. " * (size // 10),
    "nested quotes": lambda size: "\"'“„«「" * (size // 6),
    "quotes that never close": lambda size: "“One. " * (size // 6),
    "marks alone": lambda size: "。" * size,
    "dots": lambda size: "." * size,
    "spaced dots": lambda size: ". " * (size // 2),
    "white space": lambda size: " " * size,
    "blank lines": lambda size: "\n" * size,
    "CRLF": lambda size: "One line.\r\nTwo.\r\n\r\n" * (size // 19),
    "unclosed fences": lambda size: "```python\nx = 1\n" * (size // 16),
    "one unclosed fence": lambda size: "```\n" + "x = 1\n" * (size // 6),
    "open brackets": lambda size: "[" * size,
    "lines of open braces": lambda size: "{\n" * (size // 2),
    "lines that begin JSON": lambda size: '{"a":\n' * (size // 6),
    "lines that begin arrays": lambda size: '["x",\n' * (size // 6),
    "bracketed commas": lambda size: "[a, b, c d e f g h i j k\n" * (size // 25),
    "minified JSON": lambda size: json.dumps(
        [{"id": n, "t": "Some text. " * 50} for n in range(size // 580)]
    ),
    "numbers in JSON": lambda size: json.dumps(list(range(size // 7))),
    "backslashes": lambda size: json.dumps("\\" * (size // 2)).join(('{"a": ', "}")),
    "CSV": lambda size: "id,name,value\n" + "".join(f"{n},n{n},{n * 3}\n" for n in range(size // 16)),
    "commas in prose": lambda size: "one, two and more words, three of it\n" * (size // 37),
    "Markdown table": lambda size: "| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * (size // 10),
    "pipes": lambda size: "|" * size,
    "stack traces": lambda size: (
        'Traceback (most recent call last):\n  File "x"\nValueError: no\n' * (size // 62)
    ),
    "a line of capitals over a trace": lambda size: "A" * size + "\n    at x\n",
    "a dotted name over a trace": lambda size: "a." * (size // 2) + "\n    at x\n",
    "a trace that ends in capitals": lambda size: "panic:\n  at x\n" + "A" * size,
    "headings": lambda size: "# T\n" * (size // 4),
    "rules": lambda size: "---\n" * (size // 4),
    "tags": lambda size: "<doc>\n" * (size // 6),
    "documents": lambda size: "Document [1](Title: x) y.\n" * (size // 26),
    "an open title": lambda size: "Document [1](Title: " + "(" * size,
    "turns": lambda size: "A: hi\nB: yo\n" * (size // 12),
    "colons": lambda size: "a: " * (size // 3),
    "numbered": lambda size: "".join(f"[{n}] a\n" for n in range(size // 8)),
    "indented": lambda size: "    x\n" * (size // 6),
    "combining marks": lambda size: "e" + "\u0301" * size,
    "odd separators": lambda size: "a\u2028b\u200b\x85c\x1c" * (size // 7),
    "URLs": lambda size: "http://a.b/c?d=e&f " * (size // 19),
    "orders": lambda size: "ignore all previous " * (size // 20),
    "random characters": random_text,
}


@pytest.mark.parametrize("name", NASTY)
@pytest.mark.parametrize("ratio", [0.05, 0.5])
def test_a_nasty_input_is_compressed_within_its_budget(compress: Compress, name: str, ratio: float) -> None:
    source = NASTY[name](6000)
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


@pytest.mark.parametrize("name", NASTY)
def test_segmentation_takes_steps_in_proportion_to_the_input(name: str) -> None:
    """Counted in calls, Python's and C's: twice the input may take little more than twice the calls."""
    small, large = (steps(NASTY[name](size)) for size in (8_000, 16_000))
    assert large <= 2.5 * small + 2_000


@pytest.mark.timeout(60)
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
    ],
)
def test_no_pattern_reads_the_same_text_again_and_again(name: str) -> None:
    """What happens inside a regular expression is no call: the square of this length would take hours."""
    segment(NASTY[name](500_000))


def steps(source: str) -> int:
    """Calls that segmentation makes, each weighed by the lines that it runs."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> object:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        segment(source)
    finally:
        sys.settrace(before)
    return count
