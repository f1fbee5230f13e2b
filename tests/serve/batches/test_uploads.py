"""A form in whatever pieces it comes, and the lines of an input file, whatever is in it: read in bounded memory."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.batches.batch import NewLine
from serve.batches.files import FormReader
from serve.batches.validation import BadLine, asked_of, chunks_of, raw_lines, repeated_ids
from serve.http.request_body import InvalidBody


async def in_pieces(body: bytes, cuts: list[int]) -> AsyncIterator[bytes]:
    places = sorted({cut % (len(body) + 1) for cut in cuts} | {0, len(body)})
    for begin, end in pairwise(places):
        yield body[begin:end]


# What a file may hold to be taken for the end of a part.
TRICKY = st.sampled_from([b"\r\n--", b"--", b"\r", b"\n", b"BOUNDARY", b"x", b"\0", b'{"a":1}\n'])
CONTENT = st.lists(TRICKY | st.binary(max_size=9), max_size=30).map(b"".join)


@given(CONTENT, st.lists(st.integers(0, 10**6), max_size=12))
async def test_the_file_is_as_it_was_sent_wherever_it_is_cut(content: bytes, cuts: list[int]) -> None:
    request = httpx.Request(
        "POST",
        "http://pith/",
        data={"purpose": "batch"},
        files={"file": ("ü.jsonl", content)},
        headers={"Content-Type": "multipart/form-data; boundary=BOUNDARY"},
    )
    body = request.read()
    if b"\r\n--BOUNDARY" in content:
        # No client would choose this boundary.
        return
    form = FormReader(request.headers["content-type"])
    pieces = [piece async for piece in form.file_pieces(in_pieces(body, cuts))]
    form.check_ended()
    assert b"".join(pieces) == content
    assert form.data.fields == {"purpose": "batch"}
    assert form.data.filename is not None and form.data.filename.endswith(".jsonl")


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=5))
async def test_any_other_bytes_are_read_or_refused(body: bytes, cuts: list[int]) -> None:
    form = FormReader("multipart/form-data; boundary=b")
    try:
        async for _ in form.file_pieces(in_pieces(b"--b\r\n" + body, cuts)):
            pass
        form.check_ended()
    except InvalidBody as refused:
        assert refused.issues


FIELD = b'--b\r\nContent-Disposition: form-data; name="x"\r\n\r\nv\r\n--b--\r\n'


@pytest.mark.parametrize(
    ("before", "is_taken"), [(b"\r\n", True), (b"\n\r\n", True), (b"x\r\n", False), (b"\r\nx\r\n", False)]
)
@pytest.mark.parametrize("cut", [0, 1, 2, 3, 4])
async def test_only_line_breaks_may_come_before_the_first_boundary(
    before: bytes, is_taken: bool, cut: int
) -> None:
    form = FormReader("multipart/form-data; boundary=b")
    try:
        assert [piece async for piece in form.file_pieces(in_pieces(before + FIELD, [cut]))] == []
        form.check_ended()
    except InvalidBody:
        assert not is_taken
    else:
        assert is_taken and form.data.fields == {"x": "v"}


LINES = st.lists(st.binary(max_size=40).map(lambda raw: raw.replace(b"\n", b"")))


@given(LINES, st.sampled_from([b"\n", b"\r\n"]), st.booleans(), st.integers(1, 50))
def test_every_line_is_found_where_it_is(lines: list[bytes], end: bytes, last_ends: bool, most: int) -> None:
    content = end.join(lines) + (end if last_ends else b"")
    found = list(raw_lines(io.BytesIO(content), most))
    assert [raw.number for raw in found] == list(range(1, len(found) + 1))
    ends = [*(raw.offset for raw in found), len(content)][1 : len(found) + 1]
    for raw, after in zip(found, ends, strict=True):
        line = content[raw.offset : after]
        assert line.endswith(b"\n") or after == len(content)
        assert line.count(b"\n") <= 1
        assert raw.content == (line if len(line.rstrip(b"\r\n")) <= most else None)
    assert sum(map(len, chunks_of(iter(found)))) == len(found)


class Counting(io.BytesIO):
    """Notes the largest piece that was read at once."""

    largest = 0

    def readline(self, size: Any = -1, /) -> bytes:
        line = super().readline(size)
        self.largest = max(self.largest, len(line))
        return line


def test_a_line_that_is_far_too_long_is_never_in_memory_as_a_whole() -> None:
    file = Counting(b"x" * (9 * 2**20) + b"\n{}\n")
    first, second = raw_lines(file, 100)
    assert (first.content, second.content, second.number) == (None, b"{}\n", 2)
    assert file.largest <= 2**20


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=20,
)
NAMES = st.sampled_from(["custom_id", "method", "url", "body", "x"])


@given(st.binary(max_size=200) | (JSON | st.dictionaries(NAMES, JSON)).map(lambda v: json.dumps(v).encode()))
def test_any_line_is_asked_for_or_refused_with_a_reason(content: bytes) -> None:
    try:
        asked = asked_of(content)
    except BadLine as bad:
        assert bad.code and str(bad)
    else:
        assert asked.custom_id.isprintable() and isinstance(asked.body, dict)
        # The databases take it: no surrogates, no NUL.
        asked.custom_id.encode()


@pytest.mark.parametrize("custom_id", ["\\ud800", "\\u0000", "\\u202e"])
def test_an_id_that_no_database_or_terminal_should_see_is_refused(custom_id: str) -> None:
    line = f'{{"custom_id":"a{custom_id}","method":"POST","url":"/v1/x","body":{{}}}}'
    with pytest.raises(BadLine):
        asked_of(line.encode())


@given(st.lists(st.sampled_from("abcd")))
def test_a_repeated_id_is_every_line_but_its_first(names: list[str]) -> None:
    lines = [NewLine(number, name, 0, 0) for number, name in enumerate(names)]
    expected = [line for line in lines if line.custom_id in names[: line.number]]
    assert repeated_ids(lines) == expected
