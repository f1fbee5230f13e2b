"""`multipart/form-data` in whatever pieces it comes: the file as it was sent, or a reason."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise

import httpx
from hypothesis import given
from hypothesis import strategies as st

from serve.batches.files import FormReader
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
