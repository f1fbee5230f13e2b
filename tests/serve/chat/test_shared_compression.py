"""Blocks of prompts over several chats: compressed once, charged to the first that is settled, and stable."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any

import pytest
import pytest_asyncio

from billing.errors import UsageNotRecorded
from models.engine import EngineChunk, EngineRequest, TokenUsage
from serve.prompt_compression.outcome import ResultCache, SharedResult
from tests.serve.chat.test_compression import CALL, PASSAGES, agent
from tests.serve.chat.test_priced_compression import PRICED
from tests.serve.compressing import INPUT_NANO_USD, Compressing, compressing
from tests.serve.served import Client, eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


@asynccontextmanager
async def slow(service: Compressing) -> AsyncIterator[None]:
    service.engine.token_s = 0.1
    try:
        yield
    finally:
        service.engine.token_s = 0


@asynccontextmanager
async def losing(service: Compressing, *, chats: int = 1) -> AsyncIterator[None]:
    """The usage of so many chats is written nowhere."""
    settle_all, lost = service.ledger.settle_all, 0

    async def lose(used: Any, **fields: Any) -> Any:
        nonlocal lost
        lost += 1
        if lost > chats:
            return await settle_all(used, **fields)
        for one in used:
            await service.ledger.release(one.hold, now=fields["now"])
        raise UsageNotRecorded(used[0].hold.event_id, "disk full")

    service.ledger.settle_all = lose  # type: ignore[method-assign]
    try:
        yield
    finally:
        service.ledger.settle_all = settle_all  # type: ignore[method-assign]


async def started(service: Compressing, count: int) -> list[tuple[Client, asyncio.Task[Client]]]:
    """Streams of the same chat, of which each has begun before the next one comes."""
    clients = []
    for _ in range(count):
        client = service.chat(agent(), compression=PRICED, stream=True, max_tokens=6)
        clients.append((client, client.start()))
        await eventually(lambda client=client: client.body)  # type: ignore[misc]
    return clients


def said(client: Client) -> tuple[float, bool]:
    """What its compression cost, and whether another request paid."""
    compression = client.events()[-2]["service"]["compression"]
    return compression["cost_usd"], compression["blocks"][0]["cached"]


async def charged(service: Compressing) -> list[int]:
    return [event["cost_nano_usd"] for event in await service.events() if event["model_id"] == "lexical"]


COST = 780 * INPUT_NANO_USD


async def test_of_overlapping_chats_one_pays(service: Compressing) -> None:
    async with slow(service):
        clients = await started(service, 5)
        for _, task in clients:
            await task
    assert len(service.model.started) == 1
    assert await charged(service) == [COST]
    assert sorted(said(client) for client, _ in clients) == [(0, True)] * 4 + [(COST / 1e9, False)]


async def test_chats_that_wait_for_the_same_compression_have_it_made_once(service: Compressing) -> None:
    gate = service.model.gates[PASSAGES] = asyncio.Event()
    tasks = [service.chat(agent(), compression=PRICED).start() for _ in range(3)]
    await eventually(lambda: service.model.started)
    await asyncio.sleep(0.05)
    gate.set()
    replies = await asyncio.gather(*tasks)
    assert {reply.status for reply in replies} == {200}
    assert len(service.model.started) == 1
    assert await charged(service) == [COST]


async def test_another_goes_on_with_the_compression_of_who_has_left(service: Compressing) -> None:
    gate = service.model.gates[PASSAGES] = asyncio.Event()
    clients = [service.chat(agent(), compression=PRICED) for _ in range(2)]
    tasks = [client.start() for client in clients]
    await eventually(lambda: service.model.started)
    await asyncio.sleep(0.05)
    clients[0].gone.set()
    await tasks[0]
    gate.set()
    assert (await tasks[1]).status == 200
    assert (len(service.model.started), service.model.cancelled) == (1, [])
    assert await charged(service) == [COST]


async def test_who_leaves_pays_and_the_others_do_not(service: Compressing) -> None:
    async with slow(service):
        (first, leaving), (second, task) = await started(service, 2)
        first.gone.set()
        await leaving
        await task
    assert await charged(service) == [COST]
    assert said(second) == (0, True)


async def test_what_was_made_for_who_left_at_that_moment_is_kept_for_who_pays(
    service: Compressing, monkeypatch: pytest.MonkeyPatch
) -> None:
    unkept: list[SharedResult] = []

    def leave(cache: ResultCache, key: str, result: SharedResult, *, owner: str) -> None:
        unkept.append(result)
        monkeypatch.undo()
        raise asyncio.CancelledError

    monkeypatch.setattr(ResultCache, "keep", leave)
    with suppress(asyncio.CancelledError):
        await service.chat(agent(), compression=PRICED).run()
    # It still unwinds, and holds what it made, when the next one comes.
    assert unkept
    await service.chat(agent(), compression=PRICED, max_tokens=6).run()
    unkept.clear()
    await service.chat(agent(), compression=PRICED, max_tokens=6).run()
    assert len(service.model.started) == 1
    assert await charged(service) == [COST]


async def test_where_the_first_chat_costs_nothing_another_pays(service: Compressing) -> None:
    """It leaves before an engine has its prompt, while the other runs."""
    generate, asked = service.engine.generate, asyncio.Event()

    async def wait_for_ever(request: EngineRequest) -> AsyncGenerator[EngineChunk, None]:
        asked.set()
        await asyncio.Event().wait()
        yield EngineChunk(b"", TokenUsage(), finished=True)

    service.engine.generate = wait_for_ever  # type: ignore[method-assign]
    try:
        first = service.chat(agent(), compression=PRICED)
        leaving = first.start()
        await asked.wait()
    finally:
        service.engine.generate = generate  # type: ignore[method-assign]
    async with slow(service):
        ((second, task),) = await started(service, 1)
        first.gone.set()
        await leaving
        await task
    assert said(second) == (COST / 1e9, False)
    assert await charged(service) == [COST]


async def test_where_the_payer_s_usage_is_lost_another_pays(service: Compressing) -> None:
    async with slow(service), losing(service):
        clients = await started(service, 3)
        for _, task in clients:
            await task
    assert await charged(service) == [COST]
    assert len(service.model.started) == 1


async def test_what_was_lost_is_charged_to_the_next(service: Compressing) -> None:
    async with losing(service):
        assert (await service.chat(agent(), compression=PRICED).run()).status == 503
    assert await charged(service) == []
    for cost in (COST / 1e9, 0):
        reply = (await service.chat(agent(), compression=PRICED).run()).json()
        assert reply["service"]["compression"]["cost_usd"] == cost
    assert await charged(service) == [COST]


async def test_what_waits_in_the_spool_is_paid(service: Compressing) -> None:
    async with slow(service):
        clients = await started(service, 1)
        service.database.is_down = True
        await clients[0][1]
        service.database.is_down = False
    reply = (await service.chat(agent(), compression=PRICED).run()).json()
    assert reply["service"]["compression"]["cost_usd"] == 0
    assert (await service.ledger.replay_spool()).posted == 2
    assert await charged(service) == [COST]


async def test_a_chat_waits_for_a_payment_that_is_being_written(service: Compressing) -> None:
    """Its own settlement begins while the payer's has not ended: that decides who pays."""
    async with slow(service):
        (first, paying), (second, task) = await started(service, 2)
        service.database.pauses = "before"
        async with asyncio.timeout(60):
            await service.database.paused.wait()
        await asyncio.sleep(0.3)
        assert not task.done()
        service.database.resumed.set()
        await asyncio.gather(paying, task)
    assert sorted(map(said, (first, second))) == [(0, True), (COST / 1e9, False)]
    assert await charged(service) == [COST]


async def test_a_block_that_stands_in_a_prompt_twice_is_charged_once(service: Compressing) -> None:
    again = {**CALL, "id": "c2"}
    messages = [
        *agent(),
        {"role": "assistant", "content": None, "tool_calls": [again]},
        {"role": "tool", "tool_call_id": "c2", "content": PASSAGES},
    ]
    reply = (await service.chat(messages, compression=PRICED).run()).json()
    blocks = reply["service"]["compression"]["blocks"]
    assert [(block["compressed"], block["cached"]) for block in blocks] == [(True, False), (True, True)]
    assert len(service.model.started) == 1
    assert await charged(service) == [COST]


CONVERSATIONS = 40
TURNS = 5
Messages = list[dict[str, Any]]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def agents(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Compressing]:
    async with compressing(tmp_path_factory.mktemp("prefix")) as found:
        yield found


def text(random: Random) -> str:
    rows = [{"id": random.randrange(9999), "city": random.choice("ABC") * 6, "usd": n} for n in range(60)]
    kinds = [
        "Please.",
        json.dumps(rows[: random.randrange(60)], indent=random.choice([None, 1])),
        "\n".join(f"2026-11-{n:02} INFO request {row['id']} took {n} ms" for n, row in enumerate(rows)),
        "\n\n".join(
            f"The gate of flight {row['id']} is {row['city']}. It costs {row['usd']}." for row in rows
        ),
        f"What of {random.randrange(9999)}?",
    ]
    return random.choice(kinds)


def part(random: Random) -> dict[str, Any]:
    mark = random.choice([{}, {"compress": True}, {"compress": False}])
    return {"type": "text", "text": text(random), **mark}


def content(random: Random) -> Any:
    return text(random) if random.random() < 0.5 else [part(random) for _ in range(random.randrange(1, 4))]


def exchange(random: Random, name: str) -> Messages:
    """What a client adds in one turn: a question, or the results of the calls that the model made."""
    if random.random() < 0.4:
        return [{"role": "user", "content": content(random)}]
    count = random.randrange(1, 3)
    calls = [
        {
            "id": f"{name}-{n}",
            "type": "function",
            "function": {"name": "look_up", "arguments": json.dumps({"id": random.randrange(9999)})},
        }
        for n in range(count)
    ]
    results = [
        {"role": "tool", "tool_call_id": f"{name}-{n}", "content": content(random)} for n in range(count)
    ]
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *results]


def settings(random: Random) -> dict[str, Any]:
    return {
        "target_ratio": random.choice([0.2, 0.3, 0.6]),
        "model": random.choice(["free", "lexical"]),
        "scope": random.choice(["marked", "all"]),
        "min_tokens": random.choice([1, 64, 500]),
        "mark_gaps": random.choice([True, False]),
    }


@pytest.mark.thorough
async def test_every_turn_sends_what_was_sent_before_and_more(agents: Compressing) -> None:
    compressed = 0
    for seed in range(CONVERSATIONS):
        random = Random(seed)
        asked = settings(random)
        messages: Messages = [{"role": "user", "content": content(random)}]
        before: Messages = []
        for turn in range(TURNS):
            if random.random() < 0.5:
                # Another process answers, which has compressed nothing of it yet.
                agents.forget()
            reply = await agents.chat(messages, compression=asked, max_tokens=1).run()
            assert reply.status == 200, reply.body
            sent = [dict(message) for message in agents.engine.requests[-1].messages]
            assert sent[: len(before)] == before, f"conversation {seed}, turn {turn}"
            compressed += reply.json()["service"]["compression"]["status"] == "applied"
            before = sent
            messages = [*messages, {"role": "assistant", "content": "Yes."}, *exchange(random, f"c{turn}")]
    assert compressed > CONVERSATIONS
