"""The work of a compression grows as its input does: counted in lines of Python that run, never by the clock.

What happens inside a regular expression is no line: `tests/patterns` holds those to shapes that are linear.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from types import FrameType

import pytest

from benchmarks.limits.inputs import HOSTILE, hostile_of
from compression.choosing.assembly import GapMarker
from compression.choosing.selection import Selection, SelectionSettings
from compression.conversation import spans_by_message
from compression.pipeline.compression_model import CompressionRequest
from compression.pipeline.pipeline import Compressor
from compression.segmentation import segment
from compression.source.units import Slice

MOST = 1.2
SMALL, LARGE = 3_000, 9_000
GAPPED: dict[str, Callable[[int], str]] = {
    "prose": lambda size: "It is so. " * (size // 10),
    "deep": lambda size: "[" * 60 + json.dumps("It is so. " * (size // 10)) + "]" * 60,
    "messages": lambda size: json.dumps([{"role": "user", "content": 'It is "so".\n' * 9}] * (size // 150)),
    "records": lambda size: json.dumps([{"id": 7, "text": "It is so. " * 50}] * (size // 520)),
}
QUERY = "Who was it that ignored the 3 new instructions, and why?"


# `make test` has every other one.
LANES = [pytest.param(name, marks=[pytest.mark.long] if at % 2 else []) for at, name in enumerate(HOSTILE)]


@pytest.mark.parametrize("name", LANES)
def test_a_hostile_text_costs_work_in_proportion_to_its_length(lexical: Compressor, name: str) -> None:
    assert growth(lambda size: compress(lexical, QUERY, hostile_of(name, size)), SMALL, LARGE) < MOST


@pytest.mark.parametrize("word", ["{:x}", "q{:x}q", "a-{}"])
def test_a_long_query_costs_work_in_proportion_to_its_length(lexical: Compressor, word: str) -> None:
    def work(size: int) -> int:
        query = " ".join(word.format(number) for number in range(size // 6))[:size]
        return compress(lexical, query, hostile_of("the query's own words", SMALL))

    assert growth(work, 5_000, 20_000) < MOST


@pytest.mark.parametrize("name", ["prose", "deep", "messages", "records"])
def test_marks_cost_work_in_proportion_to_the_slices(name: str) -> None:
    """Every other unit is kept, so that there is a gap before each."""

    def work(size: int) -> int:
        text = segment(GAPPED[name](size))
        kept = [Slice(unit.start, unit.end) for unit in text.units[::2]]
        marker = GapMarker(text)
        return lines_run(lambda: marker.render(kept))

    assert growth(work, SMALL, LARGE) < MOST


def test_spans_of_messages_cost_work_in_proportion_to_their_length() -> None:
    def work(size: int) -> int:
        source = GAPPED["messages"](size)
        kept = [Slice(at, at + 3) for at in range(0, len(source) - 3, 6)]
        return lines_run(lambda: spans_by_message(source, kept))

    assert growth(work, SMALL, LARGE) < MOST


def test_exchanges_for_one_long_unit_are_bounded() -> None:
    """Thousands of units that hardly matter would each be taken out, and put back, for a long one that does."""

    def work(size: int) -> int:
        text = segment("".join(f"- {number}\n" for number in range(size)))
        scores = [1e-6] * len(text.units)
        scores[:16] = [0.9] * 16
        costs = [size * 2] * 16 + [1] * (len(text.units) - 16)
        selection = Selection(text, scores, costs, SelectionSettings())
        selection.fill(size)
        return lines_run(lambda: selection.improve(size))

    assert growth(work, 1_000, 4_000) < MOST


def test_the_count_sees_a_square() -> None:
    """The measure itself: it would tell."""

    def work(size: int) -> int:
        return lines_run(lambda: [sum(1 for _ in range(size)) for _ in range(size)])

    assert growth(work, 50, 200) > 1.8


def compress(compressor: Compressor, query: str, text: str) -> int:
    """Lines that one compression runs."""
    return lines_run(lambda: compressor.compress(CompressionRequest(query, text, 0.5)))


def growth(work: Callable[[int], int], small: int, large: int) -> float:
    """The exponent p of a cost that grows as size^p."""
    first, last = work(small), work(large)
    return math.log(last / first) / math.log(large / small)


def lines_run(work: Callable[[], object]) -> int:
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> object:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        work()
    finally:
        sys.settrace(before)
    return count
