"""The way to a replica over real sockets on loopback: what is sent arrives, and every way of breaking has a name."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from errno import EMFILE

import pytest

from models.engine import EngineChunk, EngineFault, EngineRequest, TokenUsage
from serve.cluster.replicas import port as replica_port
from serve.cluster.replicas.address import Address
from serve.cluster.replicas.pool import ReplicaClient, ReplicaGone, ReplyBroken
from serve.cluster.replicas.port import ASKED, REFUSAL, TOKEN_BYTES, ReplicaPort, asked_bytes
from tests.serve.cluster.ports import neighbours

DEADLINE_S = 60
CHUNKS = (
    EngineChunk("data: {…}\n\n".encode(), TokenUsage(7, 1, 0), finished=False),
    EngineChunk(b"", TokenUsage(7, 3, 4), finished=False, tokens_sha256="ab" * 32),
    EngineChunk(bytes(range(256)) * 4096, TokenUsage(2**32 - 1, 5, 4, 3), finished=True),
)
# The last of one that keeps its reply.
KEPT = EngineChunk(b"{}", TokenUsage(7, 3), finished=True, reply=(0, 2**32 - 1, 150_000))
Item = EngineChunk | EngineFault
Generate = Callable[[EngineRequest], AsyncGenerator[Item, None]]


def request(text: str = "hi", **options: object) -> EngineRequest:
    return EngineRequest("id", "model", ({"role": "user", "content": text},), 16, True, "salt", options)


def answering(*items: Item) -> Generate:
    async def generate(asked: EngineRequest) -> AsyncGenerator[Item, None]:
        for item in items:
            yield item

    return generate


@asynccontextmanager
async def counted_connections(
    address: Address,
) -> AsyncIterator[tuple[Address, list[asyncio.StreamWriter]]]:
    """Where a replica is reached through here, and the connections that were made to it."""
    made: list[asyncio.StreamWriter] = []

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        made.append(writer)
        there, out = await asyncio.open_connection(address.host, address.port)
        try:
            await asyncio.gather(pump(reader, out), pump(there, writer))
        finally:
            # Cancelled at the test's end, while a connection is kept for the next request.
            out.close()
            writer.close()

    server = await asyncio.start_server(forward, "127.0.0.1", 0)
    try:
        yield replace(address, port=server.sockets[0].getsockname()[1]), made
    finally:
        # Not awaited: from Python 3.12 on a server is closed when its connections are, and the client keeps its own.
        server.close()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while some := await reader.read(2**16):
        writer.write(some)
    writer.close()


@asynccontextmanager
async def reaching(generate: Generate) -> AsyncIterator[tuple[ReplicaClient, Address]]:
    port, client = ReplicaPort(generate), ReplicaClient()
    try:
        async with asyncio.timeout(DEADLINE_S):
            yield client, await port.open("127.0.0.1")
    finally:
        await client.close()
        await port.close()


async def all_of(client: ReplicaClient, address: Address, asked: EngineRequest) -> list[Item]:
    return [item async for item in client.generate(address, asked)]


async def test_a_reply_arrives_item_by_item_as_it_was_sent() -> None:
    async with reaching(answering(*CHUNKS)) as (client, address):
        assert await all_of(client, address, request()) == list(CHUNKS)


async def test_the_tokens_of_a_reply_arrive_with_its_end() -> None:
    async with reaching(answering(CHUNKS[0], KEPT)) as (client, address):
        assert await all_of(client, address, request()) == [CHUNKS[0], KEPT]


async def test_a_request_arrives_as_it_was_sent() -> None:
    seen: list[EngineRequest] = []

    async def generate(asked: EngineRequest) -> AsyncGenerator[Item, None]:
        seen.append(asked)
        yield CHUNKS[-1]

    # Larger than what is read ahead, and an integer that is none in most JSON libraries.
    sent = request("wörd \u2028 " * 400_000, seed=2**70, logit_bias={"5": -1.5}, stop=None)
    async with reaching(generate) as (client, address):
        await all_of(client, address, sent)
    assert seen == [sent]


async def test_a_fault_arrives_as_it_was_sent_and_ends_the_reply() -> None:
    fault = EngineFault("rejected", "no such thing", "tools", retry_after_s=7)
    async with reaching(answering(CHUNKS[0], fault, CHUNKS[1])) as (client, address):
        assert await all_of(client, address, request()) == [CHUNKS[0], fault]


async def test_the_first_item_leaves_before_the_second_is_there() -> None:
    go_on = asyncio.Event()

    async def generate(asked: EngineRequest) -> AsyncGenerator[Item, None]:
        yield CHUNKS[0]
        await go_on.wait()
        yield CHUNKS[2]

    async with (
        reaching(generate) as (client, address),
        aclosing(client.generate(address, request())) as items,
    ):
        assert await anext(items) == CHUNKS[0]
        go_on.set()
        assert await anext(items) == CHUNKS[2]


async def test_who_stops_listening_ends_the_generation() -> None:
    ended = asyncio.Event()

    async def generate(asked: EngineRequest) -> AsyncGenerator[Item, None]:
        try:
            yield CHUNKS[0]
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with reaching(generate) as (client, address):
        async with aclosing(client.generate(address, request())) as items:
            await anext(items)
        await ended.wait()


async def test_a_connection_is_kept_for_the_next_request() -> None:
    async with (
        reaching(answering(*CHUNKS)) as (client, address),
        counted_connections(address) as (front, made),
    ):
        for _ in range(5):
            await all_of(client, front, request())
        assert len(made) == 1


async def test_a_connection_that_was_closed_meanwhile_is_not_used_again() -> None:
    async with (
        reaching(answering(*CHUNKS)) as (client, address),
        counted_connections(address) as (front, made),
    ):
        await all_of(client, front, request())
        made[0].close()
        await made[0].wait_closed()
        # For the client's end to hear of it.
        await asyncio.sleep(0.05)
        assert await all_of(client, front, request()) == list(CHUNKS)
        assert len(made) == 2


async def test_when_one_connection_breaks_the_idle_ones_to_its_replica_are_not_used() -> None:
    """They end with it, whether or not that is known yet. A chat that survives would be broken once by each."""
    replies = [CHUNKS, CHUNKS, CHUNKS, CHUNKS[:2], CHUNKS]

    async def generate(asked: EngineRequest) -> AsyncGenerator[Item, None]:
        for item in replies.pop(0):
            yield item

    async with (
        reaching(generate) as (client, address),
        counted_connections(address) as (front, made),
    ):
        await asyncio.gather(*(all_of(client, front, request()) for _ in range(3)))
        with pytest.raises(ReplyBroken):
            await all_of(client, front, request())
        assert len(made) == 3
        assert await all_of(client, front, request()) == list(CHUNKS)
        assert len(made) == 4


async def test_who_leaves_in_the_middle_does_not_leave_the_rest_to_the_next_request() -> None:
    async with reaching(answering(*CHUNKS)) as (client, address):
        async with aclosing(client.generate(address, request())) as items:
            await anext(items)
        assert await all_of(client, address, request()) == list(CHUNKS)


async def test_a_reply_that_nobody_reads_is_not_made_up_to_its_end() -> None:
    made = 0

    async def generate(asked: EngineRequest) -> AsyncGenerator[Item, None]:
        nonlocal made
        for made in range(1000):
            yield EngineChunk(bytes(2**20), TokenUsage(1, made), finished=False)
        yield CHUNKS[-1]

    async with (
        reaching(generate) as (client, address),
        aclosing(client.generate(address, request())) as items,
    ):
        await anext(items)
        await asyncio.sleep(0.3)
        # What fits into the buffers between: some megabytes.
        assert made < 100


async def test_a_reply_without_its_last_item_is_broken() -> None:
    async with reaching(answering(*CHUNKS[:2])) as (client, address):
        with pytest.raises(ReplyBroken):
            await all_of(client, address, request())


async def test_a_replica_that_fails_in_the_middle_is_broken() -> None:
    async def generate(asked: EngineRequest) -> AsyncGenerator[Item, None]:
        yield CHUNKS[0]
        raise RuntimeError("on purpose")

    async with reaching(generate) as (client, address):
        with pytest.raises(ReplyBroken):
            await all_of(client, address, request())


async def test_a_replica_that_is_not_there_is_gone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    client = ReplicaClient()
    with pytest.raises(ReplicaGone):
        await all_of(client, Address("127.0.0.1", port, "token"), request())
    await client.close()


async def test_a_replica_is_not_gone_because_this_process_is_out_of_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def no_socket(*arguments: object, **options: object) -> None:
        raise OSError(EMFILE, "too many open files")

    async with reaching(answering(*CHUNKS)) as (client, address):
        monkeypatch.setattr(asyncio, "open_connection", no_socket)
        with pytest.raises(ReplyBroken):
            await all_of(client, address, request())


async def test_a_replica_that_cannot_read_a_request_is_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    async with reaching(answering(*CHUNKS)) as (client, address):
        head = ASKED.pack(address.token.encode(), 2)
        monkeypatch.setattr("serve.cluster.replicas.pool.asked_bytes", lambda *of: head + b"{}")
        with pytest.raises(ReplyBroken):
            await all_of(client, address, request())


async def test_a_stranger_on_the_replicas_port_is_no_replica() -> None:
    async with reaching(answering(*CHUNKS)) as (client, address):
        with pytest.raises(ReplicaGone):
            await all_of(client, replace(address, token="f" * TOKEN_BYTES), request())


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"\xff" * 64,
        bytes(64),
        asked_bytes(request(), Address("", 0, "")),
        asked_bytes(request(), Address("", 0, "f" * TOKEN_BYTES)),
    ],
)
async def test_nothing_is_generated_without_the_token(said: bytes, caplog: pytest.LogCaptureFixture) -> None:
    asked: list[EngineRequest] = []

    async def generate(request: EngineRequest) -> AsyncGenerator[Item, None]:
        asked.append(request)
        yield CHUNKS[-1]

    async with reaching(generate) as (_, address):
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(said)
        assert await reader.read() == REFUSAL
        writer.close()
    assert asked == []
    assert caplog.text == ""


async def test_closing_the_port_waits_for_the_running_reply_and_takes_no_other() -> None:
    go_on = asyncio.Event()

    async def generate(asked: EngineRequest) -> AsyncGenerator[Item, None]:
        yield CHUNKS[0]
        await go_on.wait()
        yield CHUNKS[2]

    port, client, other = ReplicaPort(generate), ReplicaClient(), ReplicaClient()
    async with asyncio.timeout(DEADLINE_S):
        address = await port.open("127.0.0.1")
        async with aclosing(client.generate(address, request())) as items:
            await anext(items)
            closing = asyncio.create_task(port.close())
            while True:
                try:
                    async with aclosing(other.generate(address, request())) as refused:
                        await anext(refused)
                except ReplicaGone:
                    break
            assert not closing.done()
            go_on.set()
            assert await anext(items) == CHUNKS[2]
        await closing
    await client.close()
    await other.close()


async def test_replicas_listen_on_the_ports_that_are_theirs_one_each() -> None:
    ports = [ReplicaPort(answering(*CHUNKS)) for _ in range(2)]
    given = neighbours(2)
    try:
        addresses = [await port.open("127.0.0.1", given) for port in ports]
        assert {address.port for address in addresses} == set(given)
        with pytest.raises(OSError, match=r"no port of 127\.0\.0\.1 is free"):
            await ReplicaPort(answering(*CHUNKS)).open("127.0.0.1", given)
    finally:
        for port in ports:
            await port.close()


async def test_a_connection_to_a_machine_that_vanishes_is_given_up_within_seconds() -> None:
    port, client = ReplicaPort(answering(*CHUNKS)), ReplicaClient()
    try:
        address = await port.open("127.0.0.1")
        assert len([item async for item in client.generate(address, request())]) == len(CHUNKS)
        ((line,),) = client._idle.values()
        kept = line.writer.get_extra_info("socket")
        assert kept.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert kept.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 5000
    finally:
        await client.close()
        await port.close()


@asynccontextmanager
async def strangers(address: Address, number: int) -> AsyncIterator[list[socket.socket]]:
    """Connections of somebody who has no token and says nothing."""
    loop, opened = asyncio.get_running_loop(), list[socket.socket]()
    try:
        for _ in range(number):
            opened.append(socket.socket())
            opened[-1].setblocking(False)
            await loop.sock_connect(opened[-1], (address.host, address.port))
        yield opened
    finally:
        for one in opened:
            one.close()


def ended(opened: list[socket.socket]) -> int:
    """How many of them the other side has closed."""
    number = 0
    for one in opened:
        try:
            number += one.recv(1) == b""
        except BlockingIOError:
            continue
        except ConnectionResetError:
            number += 1
    return number


async def test_silent_strangers_are_few_and_who_has_the_token_is_always_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replica_port, "STRANGERS", 20)
    async with reaching(answering(*CHUNKS)) as (client, address):
        before = await all_of(client, address, request())
        async with strangers(address, 100) as opened:
            other = ReplicaClient()
            for each in (client, other):
                assert await all_of(each, address, request()) == before
            assert ended(opened) >= 80
            await other.close()


async def test_running_replies_outlive_any_number_of_strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_port, "STRANGERS", 5)
    go_on = asyncio.Event()

    async def generate(asked: EngineRequest) -> AsyncGenerator[Item, None]:
        yield CHUNKS[0]
        await go_on.wait()
        yield CHUNKS[-1]

    async with (
        reaching(generate) as (client, address),
        aclosing(client.generate(address, request())) as items,
    ):
        assert await anext(items) == CHUNKS[0]
        async with strangers(address, 50):
            go_on.set()
            assert await anext(items) == CHUNKS[-1]


@pytest.mark.parametrize("said", [b"", b"f" * (TOKEN_BYTES - 1)])
async def test_a_stranger_without_a_token_is_gone_in_time(
    said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_port, "TOKEN_S", 0.2)
    async with reaching(answering(*CHUNKS)) as (client, address):
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(said)
        assert await reader.read() == b""
        writer.close()
        # The token was given once: what comes later has time.
        await all_of(client, address, request())
        await asyncio.sleep(0.4)
        async with counted_connections(address) as (front, made):
            await all_of(client, front, request())
            await asyncio.sleep(0.4)
            await all_of(client, front, request())
            assert len(made) == 1


async def test_a_stranger_who_sends_without_end_is_read_no_further_than_its_wrong_token() -> None:
    loop = asyncio.get_running_loop()
    async with reaching(answering(*CHUNKS)) as (_, address):
        with socket.socket() as endless:
            endless.setblocking(False)
            await loop.sock_connect(endless, (address.host, address.port))
            sent = 0
            with contextlib.suppress(ConnectionError):
                while sent < 2**26:
                    await loop.sock_sendall(endless, bytes(2**16))
                    sent += 2**16
            assert sent < 2**24
