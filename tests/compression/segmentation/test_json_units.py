from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compression.pipeline.compression_model import CompressionResult
from compression.segmentation import segment

Compress = Callable[..., CompressionResult]

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=30)
PROSE = st.lists(
    st.sampled_from(["One two. ", 'Said "x."\n', "é\\n! ", "他来了。"]), min_size=20, max_size=60
).map("".join)
VALUES = st.recursive(
    SCALARS | PROSE,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=8), inner, max_size=6),
    max_leaves=40,
)
CONTAINERS = st.lists(VALUES, max_size=8) | st.dictionaries(st.text(max_size=8), VALUES, max_size=8)


@given(CONTAINERS, st.sampled_from([None, 1, 4]), st.booleans(), st.floats(0.01, 1.0), st.booleans())
def test_json_in_is_json_out(
    compress: Compress, value: Any, indent: int | None, ascii_only: bool, ratio: float, preserve_order: bool
) -> None:
    source = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    result = compress(source, ratio, preserve_order=preserve_order)
    assert result.receipt.compression_ratio <= ratio
    # Where the budget is less than the brackets there is nothing to parse, and the receipt says so.
    if result.output:
        json.loads(result.output)
    else:
        assert {"json_invalid", "target_unreachable"} <= {flag.code for flag in result.receipt.risk_flags}


def test_an_exact_pair_survives_in_a_large_object(compress: Compress) -> None:
    pairs = {f"key-{number:04}-{number * 7919 % 1000}": f"value-{number * 104729}" for number in range(75)}
    key = list(pairs)[40]
    result = compress(json.dumps(pairs), 0.1, query=f'The value of "{key}"?')
    assert json.loads(result.output)[key] == pairs[key]
    assert result.receipt.risk_flags == ()


def test_records_are_documents_with_titles() -> None:
    records = [{"title": f"Title {number}", "text": "A sentence here. " * 40} for number in range(3)]
    found = segment(json.dumps({"results": records}))
    assert [found.text(document.title) for document in found.documents if document.title is not None] == [
        '"title": "Title 0"',
        '"title": "Title 1"',
        '"title": "Title 2"',
    ]


def test_long_strings_lose_sentences_and_never_half_an_escape(compress: Compress) -> None:
    text = "".join(f'Line {number} says "no \\ {number}".\nNext é line\t{number}!\n' for number in range(60))
    result = compress(json.dumps({"log": text, "id": 7}), 0.3, marked=["Line 33 "])
    assert 'Line 33 says "no \\ 33".' in json.loads(result.output)["log"]


@pytest.mark.parametrize("fence", ["```json", "```"])
def test_json_inside_prose_and_fences_still_parses(compress: Compress, fence: str) -> None:
    value = json.dumps({f"name{number}": f"value {number}" for number in range(60)}, indent=2)
    result = compress(f"Here it is.\n\n{fence}\n{value}\n```\n\nThat was all.", 0.4, marked=["name31"])
    inside = result.output.split(fence)[1].split("```")[0]
    assert json.loads(inside)["name31"] == "value 31"
    assert not [flag for flag in result.receipt.risk_flags if flag.code == "json_invalid"]


def test_lines_of_json_are_kept_or_dropped_whole(compress: Compress) -> None:
    source = "\n".join(json.dumps({"id": number, "name": f"user {number}"}) for number in range(200))
    result = compress(source, 0.1, marked=["user 77"])
    assert {"id": 77, "name": "user 77"} in [json.loads(line) for line in result.output.splitlines()]


def test_brackets_that_never_close_are_text() -> None:
    for source in ("[" * 5000, '{"a":\n' * 500, "[1, 2\n" * 500):
        found = segment(source)
        assert not [frame for frame in found.frames if frame.kind == "json"]


def test_a_record_of_several_members_may_be_kept_in_part() -> None:
    """What an agent needs of a record is often one value; what says which record it is comes with it."""
    flights = [
        {"number": f"XK{200 + n}", "from": "LIS", "to": "OSL", "seats": {"front": n, "back": 2 * n}, "gate": f"B{n}",
         "departs": f"{6 + n}:15", "remark": "doors close twenty minutes before"}
        for n in range(6)
    ]  # fmt: skip
    text = segment(json.dumps(flights))
    pieces = [text.text(unit) for unit in range(len(text.units))]
    assert '"departs": "8:15"' in pieces
    assert not any("XK202" in piece and "departs" in piece for piece in pieces)


def test_a_short_record_stays_whole() -> None:
    text = segment(json.dumps([{"id": n, "name": f"n{n}", "ok": True, "at": n} for n in range(30)]))
    assert '{"id": 7, "name": "n7", "ok": true, "at": 7}' in [
        text.text(unit) for unit in range(len(text.units))
    ]


def test_a_mark_of_the_byte_order_before_it_changes_nothing(compress: Compress) -> None:
    source = json.dumps([{"id": number, "said": "word " * 20, "paid": True, "n": 1} for number in range(9)])
    assert segment(f"\ufeff{source}").texts() == segment(source).texts()
    json.loads(compress(f"\ufeff{source}", 0.3).output)
