"""How many requests begin in one turn of the event loop, and who does not wait."""

from __future__ import annotations

import asyncio

from starlette.types import Message, Receive, Scope, Send

from serve.http.middleware import Pacer, PacingMiddleware


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
