"""Clients that are slow, silent or many, in sending and in reading, on real sockets."""

from __future__ import annotations

import asyncio
import resource
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from sqlalchemy import text
from starlette.types import Receive, Scope, Send

from billing.caller import NO_LIMITS
from models.fake_engine import FakeEngine
from serve.app import PithServer
from serve.config.server_settings import ServerSettings
from serve.http.server.bounds import SendTimes, SendWatch, overdue, public_bounds
from serve.http.server.server import BoundedHttp, http_config
from serve.processes.listener import own_listener
from tests.serve.http.serving import Listening, Raw, detail, eventually, listening
from tests.serve.served import HI, Served, serving
from tests.serve.served import eventually as soon

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


STALLED_S = 0.4
# Many times what the kernel keeps between the two ends.
WORD, WORDS = "x" * 32_768, 200
SMALL_BUFFER = 16_384


@asynccontextmanager
async def slow_to_read(
    folder: Path,
) -> AsyncIterator[tuple[Served, Callable[[], socket.socket], PithServer]]:
    """The service on a port, a function that connects to it with small buffers on both sides, and its server."""
    server = {"max_body_bytes": 4096, "send_timeout_s": STALLED_S}
    async with serving(folder, server=server) as service:
        served = await service.renewed()
        listener = own_listener("127.0.0.1", 0)
        sock = listener.sock
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BUFFER)
        http = PithServer(http_config(served.api, served.settings), listener)
        running = asyncio.create_task(http.serve())
        opened: list[socket.socket] = []

        def connect() -> socket.socket:
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
            client.connect(sock.getsockname())
            client.setblocking(False)
            opened.append(client)
            return client

        await soon(lambda: http.started, "the server listens")
        try:
            yield served, connect, http
        finally:
            for client in opened:
                client.close()
            http.should_exit = True
            await running


def request(served: Served, **fields: Any) -> bytes:
    body = orjson.dumps({"messages": HI, "max_tokens": WORDS, **fields})
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {served.key}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def rows(served: Served, statement: str) -> list[Any]:
    return list(await served.database.read(lambda c: c.execute(text(statement)).all()))


async def settled(served: Served) -> list[tuple[str, int]]:
    """The outcome and the completion tokens of each usage event, once no hold is open."""
    deadline = asyncio.get_running_loop().time() + 60
    while asyncio.get_running_loop().time() < deadline:
        holds = await rows(served, "SELECT event_id FROM holds")
        events = await rows(served, "SELECT outcome, completion_tokens FROM usage_events")
        if events and not holds:
            return [tuple(event) for event in events]
        await asyncio.sleep(0.01)
    pytest.fail("a hold stays open, or nothing was settled")


async def read_some(client: socket.socket, size: int) -> bytes:
    return await asyncio.get_running_loop().sock_recv(client, size)


async def read_to_the_end(client: socket.socket) -> bytes:
    found = bytearray()
    try:
        while piece := await read_some(client, 65_536):
            found += piece
    except ConnectionResetError:
        found += b"<reset>"
    return bytes(found)


async def test_a_client_that_stops_reading_its_stream_is_one_that_left(tmp_path: Path) -> None:
    async with slow_to_read(tmp_path) as (served, connect, _):
        served.engine.text = " ".join([WORD] * WORDS)
        client = connect()
        await asyncio.get_running_loop().sock_sendall(client, request(served, stream=True))
        assert (await read_some(client, 12)) == b"HTTP/1.1 200"
        ((outcome, tokens),) = await settled(served)
        (aborted,) = served.engine.aborted
        assert outcome == "disconnected"
        assert 0 < tokens == aborted.completion_tokens < WORDS
        # The rest of the reply was thrown away, not kept for a client that may never come back.
        assert (await read_to_the_end(client)).endswith(b"<reset>")


async def test_a_client_that_reads_slowly_gets_all_of_its_stream(tmp_path: Path) -> None:
    words = 40
    async with slow_to_read(tmp_path) as (served, connect, _):
        served.engine.text = " ".join([WORD] * words)
        client, began = connect(), asyncio.get_running_loop().time()
        await asyncio.get_running_loop().sock_sendall(client, request(served, stream=True))
        found = bytearray()
        while not found.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"):
            piece = await read_some(client, 16_384)
            assert piece, "the connection ended"
            found += piece
            await asyncio.sleep(STALLED_S / 20)
        assert asyncio.get_running_loop().time() - began > 2 * STALLED_S
        assert await settled(served) == [("completed", words)]


async def test_a_json_reply_that_nobody_reads_does_not_keep_its_connection(tmp_path: Path) -> None:
    async with slow_to_read(tmp_path) as (served, connect, http):
        served.engine.text = " ".join([WORD] * WORDS)
        client = connect()
        await asyncio.get_running_loop().sock_sendall(client, request(served))
        assert await settled(served) == [("completed", WORDS)]
        assert (await read_some(client, 12)) == b"HTTP/1.1 200"
        await soon(lambda: not http.server_state.connections, "the connection is cut")
        assert (await read_to_the_end(client)).endswith(b"<reset>")


async def test_who_leaves_with_another_request_waiting_behind_is_heard(tmp_path: Path) -> None:
    async with slow_to_read(tmp_path) as (served, connect, _):
        key = await served.new_key(limits=NO_LIMITS)
        served.key = key
        served.engine = FakeEngine(token_s=0.01)
        client = connect()
        both = request(served, stream=True, ignore_eos=True, max_tokens=4000)
        both += request(served, stream=True)
        await asyncio.get_running_loop().sock_sendall(client, both)
        await read_some(client, 12)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        ((outcome, tokens),) = await settled(served)
        assert outcome == "disconnected" and tokens < 4000
        assert len(served.engine.requests) == len(served.engine.aborted) == 1


class FakeTransport:
    """A fake connection whose buffer holds as much as the test says."""

    def __init__(self) -> None:
        self.size = 0
        self.aborted = False

    def get_write_buffer_size(self) -> int:
        return self.size

    def get_extra_info(self, name: str) -> None:
        return None

    def abort(self) -> None:
        self.aborted = True


class FakeLoop:
    """A fake loop: its clock goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[tuple[float, Callable[[], None], Any]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Any:
        entry: Any = [self.now + delay_s, callback, self]
        self.timers.append(entry)

        class Handle:
            def cancel(handle) -> None:
                if entry in self.timers:
                    self.timers.remove(entry)

        return Handle()

    def pass_s(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [entry for entry in self.timers if entry[0] <= end]:
            first = min(due, key=lambda entry: entry[0])
            self.timers.remove(first)
            self.now = max(self.now, first[0])
            first[1]()
        self.now = end


@pytest.fixture
def watched() -> tuple[SendWatch, Any, Any]:
    transport, loop = FakeTransport(), FakeLoop()
    times = SendTimes(stalled_s=30, longest_s=100)
    fake_transport: Any = transport
    fake_loop: Any = loop
    return SendWatch(fake_transport, times, fake_loop), transport, loop


def test_without_a_byte_taken_the_connection_is_cut_after_the_deadline(watched: Any) -> None:
    watch, transport, loop = watched
    transport.size = 100_000
    watch.watch()
    loop.pass_s(29.9)
    assert not transport.aborted
    loop.pass_s(0.1)
    assert transport.aborted


def test_a_byte_taken_in_each_deadline_is_enough_until_the_longest_time_is_over(watched: Any) -> None:
    watch, transport, loop = watched
    transport.size = 100_000
    watch.watch()
    for _ in range(9):
        transport.size -= 1
        loop.pass_s(10)
        assert not transport.aborted
    loop.pass_s(10)
    assert transport.aborted, "a client must not read for ever"


def test_a_buffer_that_has_room_is_not_watched(watched: Any) -> None:
    watch, transport, loop = watched
    transport.size = 100_000
    watch.watch()
    watch.rest()
    loop.pass_s(1000)
    transport.size = 0
    watch.watch()
    assert not transport.aborted and loop.timers == []


def test_each_request_on_a_connection_has_its_own_longest_time(watched: Any) -> None:
    watch, transport, loop = watched
    loop.pass_s(1000)
    watch.begin()
    transport.size = 100_000
    watch.watch()
    transport.size -= 1
    loop.pass_s(30)
    assert not transport.aborted
