"""Targets: the bytes of a body, as JSON and as an upload's form."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator
from email import policy
from email.parser import BytesParser
from typing import Any

import orjson

from models.options.messages import exact_values_in, values_in
from serve.batches.files import (
    LEAST_LIFETIME_S,
    MAX_FIELD_BYTES,
    MAX_NAME_BYTES,
    MAX_PARTS,
    MOST_LIFETIME_S,
    FormReader,
    lifetime_of,
)
from serve.http.request_body import MAX_NESTING, InvalidBody, parse_json
from tests.fuzzing.choices import Choices

ENOUGH = 2**20
# What pith refuses and Python's own parser takes, or reads as something else.
STRICTER = ("json_too_deep", "too_many_values", "missing")


def json_body(data: bytes) -> None:
    """The edge reads what the standard library reads, as the same value; what it refuses it can say, with a place."""
    try:
        found = parse_json(data, "application/json")
    except InvalidBody as refused:
        is_refused_well(refused, data)
        return
    assert same(found, json.loads(data.decode("utf-8"), parse_constant=no_constant)), found
    count = counted(found)
    # Of a key that is there twice, the parser keeps one.
    exact = exact_values_in(data, enough=ENOUGH)
    assert exact >= count and values_in(data, enough=ENOUGH) >= exact, (count, exact)
    assert nesting(found) <= MAX_NESTING


def is_refused_well(refused: InvalidBody, data: bytes) -> None:
    (issue,) = refused.issues
    orjson.dumps(issue.as_dict())
    offset = issue.loc[1] if len(issue.loc) > 1 else 0
    assert isinstance(offset, int) and 0 <= offset <= len(data), issue
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=no_constant, object_pairs_hook=all_of)
    except (ValueError, RecursionError):
        return
    assert issue.type in STRICTER or has_what_no_json_reader_should_take(value), (issue, value)


def all_of(pairs: list[tuple[str, Any]]) -> list[Any]:
    """Keys and values, also those of a key that is there twice."""
    return [part for pair in pairs for part in pair]


def has_what_no_json_reader_should_take(value: Any) -> bool:
    """Half of a surrogate pair, or a number beyond all floats."""
    if isinstance(value, list):
        return any(map(has_what_no_json_reader_should_take, value))
    if isinstance(value, str):
        return any("\ud800" <= letter <= "\udfff" for letter in value)
    return isinstance(value, float) and math.isinf(value)


def no_constant(name: str) -> Any:
    raise ValueError(name)


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same types: 1 is not 1.0, nor True."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def counted(value: Any) -> int:
    """Values and keys."""
    if isinstance(value, dict):
        return 1 + sum(1 + counted(each) for each in value.values())
    return 1 + sum(map(counted, value)) if isinstance(value, list) else 1


def nesting(value: Any) -> int:
    """Levels of what holds something: an empty list within is none of its own."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(nesting, inner)) if inner else 0


BOUNDARY = b"b0undary"
CONTENT_TYPE = f"multipart/form-data; boundary={BOUNDARY.decode()}"
NAMES = ("file", "purpose", "expires_after[seconds]", "expires_after[anchor]", "x")
VALUES = (b"batch", b"created_at", b"3600", b"0000000036000000000", b"9" * 400, b"\xd9\xa3" * 4)


def form(data: bytes) -> None:
    """A form gives the same wherever it is cut, within its bounds, and what was put in; any other bytes are refused."""
    choices = Choices(data)
    if choices.random() < 0.5:
        cuts = choices.take(4)
        read(choices.rest(), cuts)
        return
    parts = [part(choices) for _ in range(choices.randrange(MAX_PARTS + 2))]
    body = b"".join(b"--%s\r\n%s\r\n\r\n%s\r\n" % (BOUNDARY, head, content) for _, head, content in parts)
    body += b"--%s--\r\n" % BOUNDARY
    found = read(body, choices.take(4))
    names = [name for name, _, _ in parts]
    small = all(name == "file" or len(content) <= MAX_FIELD_BYTES for name, _, content in parts)
    assert (found is not None) == (len(parts) <= MAX_PARTS and names.count("file") <= 1 and small)
    if found is not None:
        file, reader = found
        assert file == b"".join(content for name, _, content in parts if name == "file")
        due = {name: content.decode("utf-8", "replace") for name, _, content in parts if name != "file"}
        assert reader.data.fields == due
        agrees_with_mail(body, file)


def part(choices: Choices) -> tuple[str, bytes, bytes]:
    name = choices.choice(NAMES)
    disposition = b'Content-Disposition: form-data; name="%s"' % name.encode()
    if name == "file":
        disposition += b'; filename="%s"' % choices.take(choices.randrange(6)).hex().encode()
    lines = [b"Content-Type: text/plain"] * choices.randrange(2) + [disposition]
    how = choices.randrange(4)
    content = choices.choice(VALUES) if how == 0 else choices.take(choices.randrange(60))
    if how == 1:
        content *= 200
    return name, b"\r\n".join(lines), content.replace(b"--" + BOUNDARY, b"")


def read(body: bytes, cuts: bytes) -> tuple[bytes, FormReader] | None:
    """The file and the form; None where it is refused, which it then is wherever it was cut."""
    whole, pieces = taken(body, []), taken(body, [cut * (len(body) // 256 + 1) for cut in cuts])
    assert (whole is None) == (pieces is None)
    if whole is None or pieces is None:
        return None
    assert (whole[0], whole[1].data) == (pieces[0], pieces[1].data)
    fields = whole[1].data.fields
    assert len(fields) <= MAX_PARTS and all(len(name.encode()) <= 3 * MAX_NAME_BYTES for name in fields)
    try:
        assert LEAST_LIFETIME_S <= lifetime_of(fields, LEAST_LIFETIME_S) <= MOST_LIFETIME_S, fields
    except InvalidBody as refused:
        orjson.dumps([issue.as_dict() for issue in refused.issues])
    return whole


def taken(body: bytes, cuts: list[int]) -> tuple[bytes, FormReader] | None:
    async def pieces() -> AsyncIterator[bytes]:
        begin = 0
        for end in [*sorted(cuts), len(body)]:
            yield body[begin:end]
            begin = max(begin, end)

    async def reading() -> tuple[bytes, FormReader]:
        reader = FormReader(CONTENT_TYPE)
        found = [piece async for piece in reader.file_pieces(pieces())]
        reader.check_ended()
        return b"".join(found), reader

    running = reading()
    try:
        # It waits for nothing, so it needs no loop.
        running.send(None)
    except StopIteration as ended:
        return ended.value  # type: ignore[no-any-return]
    except InvalidBody as refused:
        orjson.dumps([issue.as_dict() for issue in refused.issues])
        return None
    raise AssertionError("reading a form waited for something else than its body")


def agrees_with_mail(body: bytes, file: bytes) -> None:
    """The standard library's reader of mail finds the same file, where no line end in it could be read otherwise."""
    if b"\r" in file or b"\n" in file or not file:
        return
    head = f"MIME-Version: 1.0\r\nContent-Type: {CONTENT_TYPE}\r\n\r\n".encode()
    message = BytesParser(policy=policy.HTTP).parsebytes(head + body)
    files = [each for each in message.iter_parts() if each.get_filename() is not None]
    assert [each.get_payload(decode=True) for each in files] == [file]
