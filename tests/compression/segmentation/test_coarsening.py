"""Sources of absurdly many units: their units are joined, and what is kept still parses and is still headed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.limits.inputs import HOSTILE, hostile_of
from compression.pipeline.compression_model import CompressionRequest, CompressionResult
from compression.pipeline.pipeline import Compressor, Pipeline
from compression.pipeline.spec import CompressionSettings
from compression.scorers.lexical import BM25Scorer
from compression.segmentation import SegmentationSettings, segment
from compression.segmentation.segment import coarsened
from compression.source.token_counter import FakeCounter
from tests.compression.segmentation.invariants import check

FEW = SegmentationSettings(most_units=40, most_lines=60)


def compressed(source: str, ratio: float = 0.5, query: str = "k7") -> CompressionResult:
    compressor = Compressor(BM25Scorer(), Pipeline(FakeCounter(), CompressionSettings(segmentation=FEW)))
    return compressor.compress(CompressionRequest(query, source, ratio))


@pytest.mark.parametrize("name", HOSTILE)
def test_no_source_has_more_units_than_are_allowed(name: str) -> None:
    text = segment(hostile_of(name, 6_000), FEW)
    assert len(text.units) <= 40
    check(text)


def test_a_source_of_few_units_is_as_it_was() -> None:
    text = segment("# A\nOne. Two.\n\n# B\nThree.")
    assert coarsened(text, len(text.units)) is text


@given(
    st.recursive(
        st.one_of(st.integers(0, 99), st.text("ab ", max_size=60)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=30), st.dictionaries(st.text("kxyz", max_size=3), inner, max_size=30)
        ),
        max_leaves=120,
    ).filter(lambda value: isinstance(value, dict | list)),
    st.floats(0.05, 0.9),
)
@settings(max_examples=60)
def test_json_of_joined_members_still_parses(value: object, ratio: float) -> None:
    few = SegmentationSettings(most_units=8)
    text = segment(json.dumps([value, value]), few)
    assert len(text.units) <= 8
    check(text)
    compressor = Compressor(BM25Scorer(), Pipeline(FakeCounter(), CompressionSettings(segmentation=few)))
    result = compressor.compress(CompressionRequest("k a", text.source, ratio))
    assert not result.output or isinstance(json.loads(result.output), list)


def test_the_members_of_an_object_of_thousands_are_joined_and_the_right_ones_kept() -> None:
    source = json.dumps({f"k{number}": number for number in range(3_000)})
    result = compressed(source, 0.2, "k1234")
    assert json.loads(result.output)["k1234"] == 1234


def test_rows_that_were_joined_keep_their_header() -> None:
    source = "name\tyear\n" + "".join(f"k{number}\t{number}\n" for number in range(2_000))
    text = segment(source, SegmentationSettings(most_units=40))
    assert len(text.units) <= 40 and text.units[text.frames[0].open].kind == "table_header"
    assert all(unit.kind == "table_row" and unit.frame == 0 for unit in text.units[1:])


def test_documents_that_were_joined_lose_their_titles_and_no_text() -> None:
    source = "".join(f"Document {number}: about k{number}\nIt is {number}.\n\n" for number in range(500))
    text = segment(source, FEW)
    assert 1 < len(text.documents) <= len(text.units) <= 40
    assert "about k321" in compressed(source, 0.2, "k321").output


def test_lines_of_one_character_are_read_several_at_a_time() -> None:
    text = segment("x\n" * 5_000, FEW)
    assert len(text.units) <= 40 and text.units[0].start == 0 and text.units[-1].end == 9_999
