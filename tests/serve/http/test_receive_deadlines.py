"""Clients that are slow, silent or many, on raw sockets: each is told where HTTP allows, and the others are served."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import pytest
from starlette.types import Receive, Scope, Send

from serve.config.server_settings import ServerSettings
from serve.http.server.bounds import public_bounds
from serve.http.server.deadlines import overdue
from serve.http.server.server import BoundedHttp
from tests.serve.http.serving import Listening, Raw, detail, eventually, listening

GET = b"GET /quick HTTP/1.1\r\nHost: h\r\n\r\n"
TIMES = ServerSettings(idle_timeout_s=0.6, head_timeout_s=0.6, body_timeout_s=0.6, body_bytes_per_s=1_000_000)
IDLE_SOCKETS = 5000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listening]:
    times = {"idle_timeout_s": 0.6, "head_timeout_s": 0.6, "body_timeout_s": 0.6}
    with listening(tmp_path_factory.mktemp("state"), **times) as server:
        yield server


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (b"G", "headers took longer than 0.6 s"),
        (b"GET / HTTP/1.1\r\nHost: h\r\na: b", "headers took longer"),
        (b"\r\n\r\nGET /", "headers took longer"),
        (GET + b"GET / HTT", "headers took longer"),
        (b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nx", "body came too slowly: 1 bytes"),
        (b"POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n", "2 bytes"),
        (
            b"POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\na: b",
            "2 bytes",
        ),
    ],
)
def test_a_request_that_does_not_come_to_its_end_gets_408(server: Listening, sent: bytes, words: str) -> None:
    with server.connect() as client:
        client.send(sent)
        reply = client.reply()
    last = reply[reply.rindex(b"HTTP/1.1 ") :]
    status, why = detail(last)
    assert status == 408
    assert words in why


@pytest.mark.parametrize("sent", [b"", b"\r\n", GET, GET + b"\r\n"])
def test_a_connection_that_is_asked_for_nothing_ends_without_a_word(server: Listening, sent: bytes) -> None:
    with server.connect() as client:
        client.send(sent)
        assert client.reply().count(b"HTTP/1.1") == sent.count(b"GET")


def test_a_body_that_comes_after_its_answer_must_come_too(server: Listening) -> None:
    with server.connect() as client:
        client.send(b"POST /early HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nx")
        assert client.reply().count(b"HTTP/1.1") == 1


def test_a_request_that_is_whole_is_waited_for(server: Listening) -> None:
    server.loop.call_soon_threadsafe(server.application.release.clear)
    with server.connect() as client, server.connect() as silent:
        client.send(b"GET /held HTTP/1.1\r\nHost: h\r\n\r\n")
        # The silent one came later, and has gone by now: the one that waits for its reply has not.
        assert silent.reply() == b""
        server.release()
        assert client.answer().startswith(b"HTTP/1.1 200")


def test_a_connection_in_use_is_kept(server: Listening) -> None:
    with server.connect() as client, server.connect() as silent:
        silent.socket.setblocking(False)
        asked = 0
        while _is_open(silent) or asked < 2:
            client.send(GET)
            assert client.answer().startswith(b"HTTP/1.1 200")
            asked += 1


def _is_open(client: Raw) -> bool:
    try:
        return client.socket.recv(1) != b""
    except BlockingIOError:
        return True


def test_a_half_closed_connection_ends(server: Listening) -> None:
    with server.connect() as client:
        client.send(b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nx")
        client.socket.shutdown(socket.SHUT_WR)
        assert client.reply() == b""


@pytest.mark.parametrize(
    ("part", "for_s", "body_bytes", "late"),
    [
        ("none", 0.5, 0, False),
        ("none", 0.7, 0, True),
        ("head", 0.5, 0, False),
        ("head", 0.7, 0, True),
        ("body", 0.5, 0, False),
        ("body", 0.7, 0, True),
        ("body", 1.5, 1_000_000, False),
        ("body", 1.7, 1_000_000, True),
    ],
)
def test_what_each_part_of_a_request_may_take(part: str, for_s: float, body_bytes: int, late: bool) -> None:
    found = overdue(TIMES, part, for_s=for_s, body_bytes=body_bytes, refusal=None)  # type: ignore[arg-type]
    assert (found is not None) == late


HELD = b"GET /held HTTP/1.1\r\nHost: h\r\n\r\n"


def busy(server: Listening, opened: ExitStack, number: int) -> list[Raw]:
    """Connections whose requests are at work until the server is released."""
    server.loop.call_soon_threadsafe(server.application.release.clear)
    before = server.application.seen.count("/held")
    clients = [opened.enter_context(server.connect()) for _ in range(number)]
    for client in clients:
        client.send(HELD)
    eventually(lambda: server.application.seen.count("/held") == before + number)
    return clients


def test_a_connection_over_the_limit_is_told_so_and_the_next_one_is_taken_when_one_ends(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with listening(tmp_path_factory.mktemp("state"), max_connections=3) as server, ExitStack() as opened:
        first, *_ = busy(server, opened, 3)
        with server.connect() as asking:
            asking.send(GET)
            assert detail(asking.reply())[0] == 503
        with server.connect() as silent:
            status, why = detail(silent.reply())
            assert (status, "3 connections" in why) == (503, True)
        first.socket.close()
        eventually(lambda: len(server.server.server_state.connections) == 2)
        assert server.answers()


def test_silent_connections_go_first_then_idle_ones_and_those_at_work_never(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with listening(tmp_path_factory.mktemp("state"), max_connections=3) as server, ExitStack() as opened:
        (working,) = busy(server, opened, 1)
        idle, silent = opened.enter_context(server.connect()), opened.enter_context(server.connect())
        idle.send(GET)
        assert idle.answer().startswith(b"HTTP/1.1 200")
        silent.send(b"GET /half HTT")
        eventually(lambda: len(server.server.server_state.connections) == 3)
        newest = opened.enter_context(server.connect())
        newest.send(GET)
        assert newest.answer().startswith(b"HTTP/1.1 200")
        assert detail(silent.reply())[0] == 503
        idle.send(GET)
        assert idle.answer().startswith(b"HTTP/1.1 200")
        # Now `newest` is the one that rests for the longest.
        assert server.answers()
        assert newest.reply() == b""
        server.release()
        assert working.answer().startswith(b"HTTP/1.1 200")


def test_a_client_that_does_not_read_its_reply_is_shed_too(tmp_path_factory: pytest.TempPathFactory) -> None:
    async def long(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        # Far more than the kernel's buffers take.
        for _ in range(64 if scope["path"] == "/long" else 0):
            await send({"type": "http.response.body", "body": bytes(2**20), "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    with (
        listening(tmp_path_factory.mktemp("state"), api=long, max_connections=1) as server,
        server.connect() as greedy,
    ):
        greedy.send(b"GET /long HTTP/1.1\r\nHost: h\r\n\r\n")
        assert greedy.socket.recv(12) == b"HTTP/1.1 200"
        eventually(server.answers)


def test_an_address_loses_its_own_silent_connections_and_no_others(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with listening(tmp_path_factory.mktemp("state")) as server, ExitStack() as opened:
        # Loopback has no such limit of its own.
        assert server.answers()
        bounds = replace(
            public_bounds(ServerSettings(allowed_hosts=["h"], max_connections_per_address=2)), not_counted=()
        )
        server.server.config.http_protocol_class = partial(BoundedHttp, bounds)  # type: ignore[assignment]
        silent, _ = [opened.enter_context(server.connect()) for _ in range(2)]
        eventually(lambda: len(server.server.server_state.connections) == 2)
        assert server.answers()
        assert detail(silent.reply())[0] == 503
        eventually(lambda: len(server.server.server_state.connections) == 1)
        busy(server, opened, 2)
        with server.connect() as third:
            third.send(GET)
            status, why = detail(third.reply())
            assert (status, "2 connections" in why) == (429, True)


def test_with_thousands_of_silent_sockets_the_service_answers_and_they_end(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 3 * IDLE_SOCKETS:
        pytest.skip(f"this machine allows {hard} open files, and the test needs {3 * IDLE_SOCKETS}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        with listening(tmp_path_factory.mktemp("state"), idle_timeout_s=4.0) as server:
            idle = [socket.create_connection(server.address) for _ in range(IDLE_SOCKETS)]
            eventually(lambda: len(server.server.server_state.connections) > IDLE_SOCKETS // 2)
            assert server.answers()
            eventually(lambda: not server.server.server_state.connections)
            assert all(each.recv(1) == b"" for each in idle)
            for each in idle:
                each.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
