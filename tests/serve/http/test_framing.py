"""Bounds on what stands around a body and on what is wrong in it; no key is needed to be refused."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

import serve
from serve.http.request_body import RequestShape
from serve.http.server.server import MAX_HEADER_BYTES, MAX_PIPELINED
from tests.serve.http.serving import Listening, detail, eventually, listening

HEAD = b"POST /echo HTTP/1.1\r\nHost: h\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
# Far more than is taken, and what one read of the loop may bring beyond the bound.
ENDLESS = 4 * 2**20
ONE_READ = 512 * 1024


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listening]:
    with listening(tmp_path_factory.mktemp("state")) as server:
        yield server


def refused(server: Listening, start: bytes, piece: bytes) -> tuple[int, str]:
    """Send a start and then a piece for ever; the answer, which must come soon after the bound."""
    with server.connect() as client:
        client.send(start)
        client.send_until_closed(piece, at_most=ENDLESS)
        reply = client.reply()
    assert server.answers()
    return detail(reply) if reply else (0, "")


def taken(server: Listening, start: bytes, piece: bytes) -> int:
    """How many bytes of an endless piece the server read before it closed: what it had parsed is what it counted."""
    with server.connect() as client:
        client.send(start)
        return client.send_until_closed(piece, at_most=64 * ENDLESS)


@pytest.mark.parametrize(
    ("start", "piece", "status"),
    [
        pytest.param(CHUNKED + b"0\r\n", b"a: b\r\n" * 1000, 400, id="endless trailers"),
        pytest.param(CHUNKED + b"0\r\na: ", b"x" * 8192, 400, id="one endless trailer"),
        pytest.param(CHUNKED + b"0\r\n", b"x" * 8192, 400, id="one endless name of a trailer"),
        pytest.param(CHUNKED + b"5;a=", b"x" * 8192, 400, id="an endless extension of a chunk"),
        pytest.param(
            CHUNKED, b"1;aaaaaaaaaaaaaaaaaaaaaaaa\r\nx\r\n" * 200, 400, id="small chunks, long extensions"
        ),
        pytest.param(CHUNKED, b"1\r\nx\r\n" * 1000, 400, id="endless chunks of a byte"),
        pytest.param(CHUNKED, b"0" * 8192, 400, id="an endless chunk size"),
        pytest.param(HEAD, b"a: b\r\n" * 1000, 431, id="endless headers"),
        pytest.param(HEAD + b"a: ", b"x" * 8192, 431, id="one endless header"),
        pytest.param(b"GET /", b"x" * 8192, 431, id="an endless path"),
        pytest.param(b"", b"\r\n" * 4096, 400, id="endless empty lines"),
        pytest.param(b"", b"\0" * 8192, 400, id="zeros"),
    ],
)
def test_what_never_ends_is_refused(server: Listening, start: bytes, piece: bytes, status: int) -> None:
    found, why = refused(server, start, piece)
    # A client that goes on sending may see a reset connection instead of the answer.
    assert found in (status, 0), why
    assert taken(server, start, piece) < 64 * ENDLESS


@pytest.mark.parametrize(
    ("sent", "status", "words"),
    [
        (CHUNKED + b"0\r\n" + b"a: b\r\n" * 12_000, 400, "trailers"),
        (CHUNKED + b"0\r\na: " + b"x" * 70_000, 400, "trailers"),
        (CHUNKED + b"1\r\nx\r\n" * 20_000, 400, "chunk sizes"),
        (HEAD + b"a: " + b"x" * 70_000, 431, "headers are larger than 65536 bytes"),
        (b"\r\n" * 40_000, 400, "around"),
        (CHUNKED + b"zz\r\n", 400, "not valid HTTP/1.1"),
    ],
)
def test_a_refusal_says_why(server: Listening, sent: bytes, status: int, words: str) -> None:
    with server.connect() as client:
        client.send(sent)
        found, why = detail(client.reply())
    assert found == status
    assert words in why


def test_trailers_do_not_become_headers(server: Listening) -> None:
    ended = b"Connection: close\r\n"
    with server.connect() as client:
        head = HEAD + ended + b"Transfer-Encoding: chunked\r\n\r\n"
        client.send(head + b"2\r\nhi\r\n0\r\nAuthorization: Bearer x\r\nX-Request-ID: y\r\n\r\n")
        reply = client.reply()
    assert reply.startswith(b"HTTP/1.1 200")
    assert b'"body": 2' in reply
    assert b"uthorization" not in reply


def test_a_body_in_small_chunks_is_taken_as_long_as_they_are_not_tiny(server: Listening) -> None:
    piece = b"28\r\n" + b"x" * 40 + b"\r\n"
    head = HEAD + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    with server.connect() as client:
        client.send(head + piece * 50_000 + b"0\r\n\r\n")
        assert b'"body": 2000000' in client.reply()


def test_small_requests_after_one_another_are_not_counted_together(server: Listening) -> None:
    one = HEAD + b"Content-Length: 1000\r\n\r\n" + b"x" * 1000
    with server.connect() as client:
        for _ in range(3 * MAX_HEADER_BYTES // 1000):
            client.send(one)
            assert client.answer().startswith(b"HTTP/1.1 200")


def test_requests_may_wait_in_line_and_the_line_ends(server: Listening) -> None:
    held = b"GET /held HTTP/1.1\r\nHost: h\r\n\r\n"
    quick = b"GET /quick HTTP/1.1\r\nHost: h\r\n\r\n"
    with server.connect() as client:
        client.send(held + quick * MAX_PIPELINED)
        server.release()
        replies = b""
        while replies.count(b"HTTP/1.1 200") <= MAX_PIPELINED:
            replies += client.socket.recv(65_536)
    server.loop.call_soon_threadsafe(server.application.release.clear)
    with server.connect() as client:
        client.send(held + quick * 5000)
        # The first is still at work, so nothing may be said that could be taken for its reply.
        assert client.reply() == b""
    assert server.application.seen.count("/quick") == MAX_PIPELINED
    assert server.answers()


def test_junk_behind_a_running_request_is_not_answered_in_its_place(server: Listening) -> None:
    server.loop.call_soon_threadsafe(server.application.release.clear)
    with server.connect() as client:
        client.send(b"GET /held HTTP/1.1\r\nHost: h\r\n\r\n")
        client.send(b"\0\0\0\r\n\r\n")
        assert client.reply() == b""


def test_a_body_that_goes_on_after_its_answer_ends(server: Listening) -> None:
    with server.connect() as client:
        client.send(b"POST /early HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000000000\r\n\r\n")
        assert client.answer().startswith(b"HTTP/1.1 200")
        assert client.send_until_closed(b"x" * 65_536, at_most=200 * 2**20) < 200 * 2**20
    assert server.answers()


def test_a_request_to_upgrade_is_answered_and_nothing_after_it(server: Listening) -> None:
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n"
    with server.connect() as client:
        client.send(b"GET /echo HTTP/1.1\r\nHost: h\r\n" + upgrade + HEAD + b"\r\n")
        client.send(HEAD + b"\r\n")
        reply = client.reply()
    assert reply.count(b"HTTP/1.1 200") == 1
    assert b"connection: close" in reply


def test_a_request_to_upgrade_with_a_body_is_refused_since_its_body_would_be_lost(server: Listening) -> None:
    upgrade = b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nhi"
    with server.connect() as client:
        client.send(HEAD + upgrade)
        status, why = detail(client.reply())
    assert (status, "Upgrade" in why) == (400, True)


def test_a_client_that_leaves_ends_the_request_that_runs_and_not_only_the_one_behind_it(
    server: Listening,
) -> None:
    server.loop.call_soon_threadsafe(server.application.release.clear)
    before = len(server.application.left)
    with server.connect() as client:
        client.send(b"GET /held HTTP/1.1\r\nHost: h\r\n\r\nGET /quick HTTP/1.1\r\nHost: h\r\n\r\n")
    eventually(lambda: len(server.application.left) == before + 1)


MANY = 60_000
# Two for each of a thousand documents or texts, which may be one of two things.
MOST_ERRORS = 2_100
LISTS: dict[str, Any] = {
    "strings": ["a"] * MANY,
    "numbers": [0.5] * MANY,
    "objects": [{} for _ in range(MANY)],
    "unknown objects": [{"type": "?", "role": "?", "a": 1} for _ in range(MANY)],
    "lists": [[] for _ in range(MANY)],
}
FILLINGS = {
    **LISTS,
    "an object": {str(number): [] for number in range(MANY)},
    **{f"a list of {name}": [value] for name, value in LISTS.items()},
    **{f"messages of {name}": [{"role": "user", "content": value}] for name, value in LISTS.items()},
    **{f"calls of {name}": [{"role": "assistant", "tool_calls": value}] for name, value in LISTS.items()},
    **{f"a function of {name}": {"type": "function", "function": value} for name, value in LISTS.items()},
    **{
        f"{name} in a function": [{"type": "function", "function": {"name": value, "parameters": value}}]
        for name, value in LISTS.items()
    },
}


def shapes() -> list[type[RequestShape]]:
    for module in pkgutil.walk_packages(serve.__path__, "serve."):
        if module.name.split(".")[1] not in ("cluster", "cli", "mcp_server"):
            importlib.import_module(module.name)
    return sorted(set(_below(RequestShape)), key=lambda shape: shape.__name__)


def _below(shape: type[RequestShape]) -> Iterator[type[RequestShape]]:
    for one in shape.__subclasses__():
        yield one
        yield from _below(one)


@pytest.mark.parametrize("filling", FILLINGS, ids=lambda name: name.replace(" ", "-"))
def test_a_body_full_of_wrong_values_has_few_errors(filling: str) -> None:
    costly = {}
    for shape in shapes():
        for name, field in shape.model_fields.items():
            try:
                shape.model_validate({(field.alias or name): FILLINGS[filling]})
            except ValidationError as error:
                if error.error_count() > MOST_ERRORS:
                    costly[f"{shape.__name__}.{name}"] = error.error_count()
    assert costly == {}
