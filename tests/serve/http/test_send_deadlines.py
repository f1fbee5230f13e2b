"""Clients that stop reading, read slowly or hide behind a second request, on real sockets and a fake engine."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from sqlalchemy import text

from billing.caller import NO_LIMITS
from models.fake_engine import FakeEngine
from serve.app import PithServer
from serve.http.server.deadlines import SendTimes, SendWatch
from serve.http.server.server import http_config
from serve.processes.listener import own_listener
from tests.serve.served import HI, Served, eventually, serving

STALLED_S = 0.4
# Many times what the kernel keeps between the two ends.
WORD, WORDS = "x" * 32_768, 200
SMALL_BUFFER = 16_384


@asynccontextmanager
async def listening(
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

        await eventually(lambda: http.started, "the server listens")
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
    async with listening(tmp_path) as (served, connect, _):
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
    async with listening(tmp_path) as (served, connect, _):
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
    async with listening(tmp_path) as (served, connect, http):
        served.engine.text = " ".join([WORD] * WORDS)
        client = connect()
        await asyncio.get_running_loop().sock_sendall(client, request(served))
        assert await settled(served) == [("completed", WORDS)]
        assert (await read_some(client, 12)) == b"HTTP/1.1 200"
        await eventually(lambda: not http.server_state.connections, "the connection is cut")
        assert (await read_to_the_end(client)).endswith(b"<reset>")


async def test_who_leaves_with_another_request_waiting_behind_is_heard(tmp_path: Path) -> None:
    async with listening(tmp_path) as (served, connect, _):
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
