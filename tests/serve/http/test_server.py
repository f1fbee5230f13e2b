"""The HTTP server below the API: connections taken in, a thousand at once, requests in one turn, and its retirement."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
import uvloop
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from benchmarks.burst.sending import Burst, burst, complaints
from benchmarks.load.exchange import Call, chat
from benchmarks.load.loop import Target
from billing.caller import ProjectLimits
from serve.app import PithServer
from serve.config.settings import Settings
from serve.http.middleware import Pacer, PacingMiddleware
from serve.http.server.server import http_config
from serve.processes.listener import own_listener
from serve.processes.process_setup import allow_open_files
from tests.faults.audit import settled
from tests.faults.world import Machines, Setup, World, new_world
from tests.serve.http.serving import Listening, eventually, listening
from tests.serve.served import settings_document

WAITING = 200


def test_connections_that_wait_are_taken_in_within_a_few_turns_of_the_loop(tmp_path: Path) -> None:
    settings = Settings.model_validate(settings_document(tmp_path))

    async def turns_taken() -> int:
        listener = own_listener("127.0.0.1", 0)
        clients = [socket.create_connection(listener.sock.getsockname()) for _ in range(WAITING)]
        server = PithServer(http_config(PlainTextResponse("hello"), settings), listener)
        serving = asyncio.create_task(server.serve())
        turns = 0
        while len(server.server_state.connections) < WAITING and turns < 2 * WAITING:
            turns += 1
            await asyncio.sleep(0)
        for client in clients:
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        replies = [await asyncio.to_thread(client.recv, 4096) for client in clients]
        for client in clients:
            client.close()
        server.should_exit = True
        await serving
        assert all(reply.startswith(b"HTTP/1.1 200") for reply in replies)
        return turns

    assert uvloop.run(turns_taken()) < WAITING / 4


def test_the_soft_limit_of_open_files_is_raised_as_far_as_it_may_be() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    allow_open_files()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)


AT_ONCE = 1000
TIMEOUT_S = 60
# Free prompts, since a burst of them is to cost what its replies cost.
MODEL = "gamma"


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    found = Machines()
    yield found
    found.close()


def requests(*, stream: bool, characters: int = 10) -> Call:
    """The fake engine wants each prompt to begin with its request's name."""
    plain = chat(MODEL, tokens=4, stream=stream)
    bodies = (
        {
            **orjson.loads(body),
            "messages": [{"role": "user", "content": f"r{number} {'word ' * (characters // 5)}"}],
        }
        for number, body in enumerate(plain.bodies)
    )
    return replace(plain, bodies=tuple(map(orjson.dumps, bodies)))


async def at_once(world: World, calls: dict[str, Call]) -> list[Burst]:
    target = Target(f"http://127.0.0.1:{world.port}", world.key)
    share = AT_ONCE // len(calls)
    return await asyncio.gather(
        *(burst(kind, target, call, requests=share, timeout_s=TIMEOUT_S) for kind, call in calls.items())
    )


async def test_a_thousand_at_once_are_answered_by_a_server_that_may_open_few_files_at_first(
    machines: Machines,
) -> None:
    calls = {
        "json": requests(stream=False),
        "sse": requests(stream=True),
        "long": requests(stream=False, characters=16_000),
        "long sse": requests(stream=True, characters=16_000),
    }
    async with new_world(Setup(ledger="sqlite", open_files=256), machines) as world:
        bursts = await at_once(world, calls)
        await settled(world.books())
    assert [one.counts() for one in bursts] == [{"200": AT_ONCE // len(calls)}] * len(calls)
    assert complaints(bursts, max_health_ms=1000 * TIMEOUT_S) == []


async def test_of_a_thousand_at_once_those_over_the_projects_limit_are_told_when_to_come_back(
    machines: Machines,
) -> None:
    setup = Setup(ledger="sqlite", limits=ProjectLimits(max_in_flight=50), token_s=0.05)
    async with new_world(setup, machines) as world:
        bursts = await at_once(world, {"json": requests(stream=False)})
        await settled(world.books())
    counts = bursts[0].counts()
    assert counts.keys() == {"200", "429"}
    assert counts["200"] >= 50
    assert complaints(bursts, max_health_ms=1000 * TIMEOUT_S) == []


class TurnCount:
    """Numbers the turns of the loop while it is entered."""

    def __init__(self) -> None:
        self.now = 0
        self._ends = False

    def __enter__(self) -> TurnCount:
        self._count()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends = True

    def _count(self) -> None:
        self.now += 1
        if not self._ends:
            asyncio.get_running_loop().call_soon(self._count)


async def test_a_few_begin_in_a_turn_in_the_order_of_asking() -> None:
    turns, begun = Pacer(at_once=4), []
    with TurnCount() as turn:

        async def request(number: int) -> None:
            await turns.begin()
            begun.append((turn.now, number))

        await asyncio.gather(*(request(number) for number in range(30)))
    assert [number for _, number in begun] == list(range(30))
    in_a_turn = [sum(1 for at, _ in begun if at == now) for now in range(turn.now + 1)]
    assert max(in_a_turn) == 4


async def test_a_request_that_is_given_up_takes_nobodys_turn() -> None:
    turns = Pacer(at_once=1)
    await turns.begin()
    waiting = [asyncio.create_task(turns.begin()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[1].cancel()
    await asyncio.wait_for(asyncio.gather(waiting[0], waiting[2]), timeout=60)
    assert waiting[1].cancelled()


async def test_a_lone_request_does_not_wait() -> None:
    turns = Pacer(at_once=1)
    for _ in range(3):
        with TurnCount() as turn:
            await turns.begin()
            assert turn.now == 1
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def test_a_probe_does_not_wait_for_the_requests_before_it() -> None:
    answered: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        answered.append(scope["path"])

    middleware = PacingMiddleware(app, Pacer(at_once=2))

    async def ask(path: str) -> None:
        await middleware({"type": "http", "path": path}, receive, send)

    async with asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(ask("/v1/chat/completions"))
        group.create_task(ask("/health"))
        group.create_task(ask("/ready"))
    assert answered[2:4] == ["/health", "/ready"]


async def receive() -> Message:
    raise AssertionError("nothing is read")


async def send(message: Message) -> None:
    raise AssertionError("nothing is sent")


ASK = b"GET /%s HTTP/1.1\r\nHost: h\r\n\r\n"


def retire(http: Listening) -> tuple[int, int]:
    async def ask() -> tuple[int, int]:
        return http.server.retire()

    return asyncio.run_coroutine_threadsafe(ask(), http.loop).result(20)


def test_each_connection_gets_one_more_reply_that_says_it_is_the_last(tmp_path: Path) -> None:
    with listening(tmp_path) as http, http.connect() as idle, http.connect() as held:
        idle.send(ASK % b"first")
        assert b"connection: close" not in idle.answer().lower()
        held.send(ASK % b"held")
        eventually(lambda: "/held" in http.application.seen)
        assert retire(http) == (1, 1)
        assert http.server.acceptor.publish() is None
        idle.send(ASK % b"second")
        assert b"connection: close" in idle.reply().lower()
        eventually(lambda: retire(http) == (0, 1))
        http.release()
        # Its head had not been sent.
        last = held.reply()
        assert last.startswith(b"HTTP/1.1 200") and b"connection: close" in last.lower()
        eventually(lambda: retire(http) == (0, 0))
        assert not http.application.left


def test_who_waited_to_be_taken_in_is_answered_and_who_comes_later_is_not_taken(tmp_path: Path) -> None:
    with listening(tmp_path) as http:
        waiting = []

        async def retire_while_some_wait() -> None:
            # The loop is here, so that nobody is taken in before.
            waiting.extend(http.connect() for _ in range(3))
            # Taken in, they count, though none of them has a protocol yet.
            assert http.server.retire() == (3, 0)

        asyncio.run_coroutine_threadsafe(retire_while_some_wait(), http.loop).result(20)
        for client in waiting:
            with client:
                client.send(ASK % b"")
                assert client.reply().startswith(b"HTTP/1.1 200")
        try:
            http.connect().socket.close()
        except ConnectionRefusedError:
            return
        raise AssertionError("a connection was taken after the retirement")
