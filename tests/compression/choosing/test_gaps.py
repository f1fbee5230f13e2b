"""Marks where something was left out: they are counted, break nothing, and the rest is the source's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from compression.build import plain_compressor
from compression.choosing.assembly import MARK, GapMarker
from compression.conversation import fault_in
from compression.pipeline.compression_model import CompressionRequest, CompressionResult
from compression.pipeline.pipeline import Compressor, Pipeline
from compression.pipeline.spec import CompressionSettings, ModelSpec
from compression.segmentation import segment
from compression.source.token_counter import FakeCounter
from compression.source.units import Segmentation, Slice, join
from tests.compression.conversation.chats import MESSAGES
from tests.compression.pipeline.test_compressor import SOURCES

Compress = Callable[..., CompressionResult]
SPEC = ModelSpec("lexical", "lexical", "embedded:pith-mini", "pith-mini")
WORDS = ("roads", "school", "harbour", "bridge", "taxes")
RATIOS = st.floats(0.02, 1.0)

TEXTS = st.lists(
    st.sampled_from(
        [
            *(
                "One is small. ",
                'Two has "quotes" and a \\ in it. ',
                "Three\nis\tlong. ",
                "四也在。",
                "[…] five. ",
            ),
            *('{"six": [1, 2]} ', "\n\n", "Ann: seven? Yes. No.\n", "\U0001f600 eight. "),
        ]
    ),
    max_size=12,
).map("".join)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(TEXTS.map(lambda text: text[:9]), inner, max_size=5)
    ),
    max_leaves=30,
)
DOCUMENTS = st.builds(
    lambda value, indent, ascii_only: json.dumps(value, indent=indent, ensure_ascii=ascii_only),
    st.lists(VALUES, min_size=1, max_size=8) | st.dictionaries(TEXTS, VALUES, min_size=1, max_size=8),
    st.sampled_from([None, 1]),
    st.booleans(),
)


class HashScorer:
    """A fake: scores that are as good as random, and the same each time."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def score(self, query: str, text: Segmentation) -> list[float]:
        del query
        return [((unit.start + 7) * (self._seed + 3) % 97) / 97 for unit in text.units]


def compressed(source: str, ratio: float, seed: int, *, in_order: bool, mark_gaps: bool) -> CompressionResult:
    compressor = Compressor(HashScorer(seed), Pipeline(FakeCounter(), CompressionSettings()))
    return compressor.compress(CompressionRequest("q", source, ratio, in_order, mark_gaps=mark_gaps))


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@given(SOURCES | DOCUMENTS, RATIOS, st.integers(0, 96), st.booleans())
def test_marks_are_counted_and_without_them_the_output_is_the_kept_slices(
    source: str, ratio: float, seed: int, in_order: bool
) -> None:
    result = compressed(source, ratio, seed, in_order=in_order, mark_gaps=True)
    assert result.receipt.output_tokens == FakeCounter().count(result.output)
    assert result.receipt.output_tokens <= ratio * result.receipt.original_tokens + 1e-6
    marks = GapMarker(segment(source)).marks(result.kept)
    if result.output == join(source, result.kept):
        marks = {}  # There was no room for them.
    at = 0
    for number, (start, end) in enumerate(result.kept):
        mark = marks.get(number, "")
        assert result.output.startswith(mark, at)
        assert mark.replace("\\n", "").strip() in ("", MARK)
        at += len(mark)
        assert result.output.startswith(source[start:end], at)
        at += end - start
    assert at == len(result.output)


@given(DOCUMENTS, RATIOS, st.integers(0, 96))
def test_json_with_marks_is_json_of_the_same_shape(source: str, ratio: float, seed: int) -> None:
    marked = compressed(source, ratio, seed, in_order=True, mark_gaps=True)
    if marked.output:
        without = json.loads(join(source, marked.kept))
        assert shape(json.loads(marked.output)) == shape(without)


def shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: shape(inner) for name, inner in value.items()}
    return [shape(inner) for inner in value] if isinstance(value, list) else type(value)


@given(SOURCES, RATIOS, st.integers(0, 96))
def test_without_being_asked_for_there_are_none(source: str, ratio: float, seed: int) -> None:
    result = compressed(source, ratio, seed, in_order=True, mark_gaps=False)
    assert result.output == join(source, result.kept)


def marked(source: str, *kept: str) -> str:
    """The source's parts that are named, with marks."""
    places = [Slice(source.index(part), source.index(part) + len(part)) for part in kept]
    return GapMarker(segment(source)).render(places)


def test_a_mark_stands_apart_as_what_went_did() -> None:
    assert marked("One. Two. Three. Four.", "One.", " Three. Four.") == "One. […] Three. Four."
    assert marked("A is one.\n\nB is two.\n\nC is three.", "A is one.", "\n\nC is") == (
        "A is one.\n\n[…]\n\nC is"
    )
    assert marked("他来了。她走了。我们等着。", "他来了。", "我们等着。") == "他来了。[…]我们等着。"
    assert marked("# Title\n\nOne is here.\n\nTwo is here.", "# Title", "Two is here.") == (
        "# Title\n\n[…]\n\nTwo is here."
    )


def test_white_space_that_was_kept_is_not_put_twice() -> None:
    assert marked("# Title\n\nOne is here. Two is here.", "# Title\n\n", "Two is here.") == (
        "# Title\n\n[…] Two is here."
    )


def test_what_is_next_to_each_other_gets_none() -> None:
    assert marked("One.   Two. Three.", "One.", "Two.") == "One.Two."
    assert marked("One. Two.", "One", "Two.") == "OneTwo."
    # What went at either end is not between two pieces.
    assert marked("One. Two. Three.", "Two.") == "Two."


def test_a_string_of_json_says_what_it_lost_in_its_own_white_space() -> None:
    text = "It began so. " + "Then came more of it. " * 30 + "\nIt ended."
    source = json.dumps({"a": 1, "b": text, "c": [1, 2]})
    end = source.index('It ended."')
    kept = [Slice(0, source.index(" Then")), Slice(end - 2, len(source))]
    assert json.loads(GapMarker(segment(source)).render(kept))["b"] == "It began so. […]\nIt ended."


def test_brackets_and_members_get_none() -> None:
    source = json.dumps([{"id": number, "text": "word " * 50} for number in range(4)])
    assert MARK not in compressed(source, 0.5, 1, in_order=True, mark_gaps=True).output


def test_a_text_in_order_of_relevance_is_marked_only_inside_its_parts(compress: Compress) -> None:
    source = "One is dull. Two is dull. Three is dull.\n\nAlpha one. Dull two. Alpha three."
    result = compress(source, 0.6, marked=["Alpha"], preserve_order=False, mark_gaps=True)
    assert result.output.startswith("Alpha one. […] Alpha three.")


@given(MESSAGES.map(json.dumps), RATIOS, st.integers(0, 96))
def test_a_conversation_with_marks_differs_from_the_one_without_in_its_texts_alone(
    source: str, ratio: float, seed: int
) -> None:
    result = compressed(source, ratio, seed, in_order=True, mark_gaps=True)
    without = json.loads(join(source, result.kept))
    assert shape(json.loads(result.output)) == shape(without)
    assert fault_in(json.loads(result.output)) == fault_in(without)


def test_a_message_that_lost_its_beginning_says_so(compress: Compress) -> None:
    messages = [
        {"role": "user", "content": "Old words. " * 40},
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "Dull talk. " * 40 + "Alpha is new.\nAnd dull."}],
        },
        {"role": "user", "content": "Alpha?"},
    ]
    source = json.dumps(messages)
    result = compress(source, 0.3, marked=["Alpha"], mark_gaps=True)
    assert json.loads(result.output)[-2:] == [
        {"role": "assistant", "content": [{"type": "text", "text": "[…] Alpha is new.\n[…]"}]},
        {"role": "user", "content": "Alpha?"},
    ]


def test_the_marks_of_a_promise_cost_no_evidence() -> None:
    compressor = plain_compressor(SPEC, FakeCounter())
    source = "\n\n".join(
        f"In {year} the council met {year % 7} times. It spoke of the {WORDS[year % 5]}."
        for year in range(1900, 1960)
    )
    asked = CompressionRequest("How often did the council meet in 1931?", source, None, keep=0.8)
    plain, marked = compressor.compress(asked), compressor.compress(replace(asked, mark_gaps=True))
    assert marked.kept == plain.kept and MARK in marked.output
    assert marked.receipt.output_tokens == FakeCounter().count(marked.output) > plain.receipt.output_tokens
    assert "target_unreachable" not in {flag.code for flag in marked.receipt.risk_flags}


def test_the_room_that_marks_leave_is_filled(compress: Compress) -> None:
    """One long sentence does not fit beside the marks: what comes in its place is shorter, and not the same again."""
    short = " ".join(f"Alpha and Beta were {number}. It rained." for number in range(30))
    source = f"{short} Alpha {'went on and on ' * 40}so. " + "Then it snowed. " * 20
    result = compress(source, 0.4, marked=["Alpha", "Beta"], mark_gaps=True)
    assert 0.36 < result.receipt.compression_ratio <= 0.4
