"""A replica around an engine, and the turns of projects at an engine without an order of its own; no Ray is needed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from models.embedding_backends import Computed, RetrievalJob
from models.engine import EngineChunk, EngineFault, EngineRequest
from models.engine_kinds import EngineSpec, start_engine
from models.errors import EngineFailed
from models.fake_engine import FakeEngine, FakeReplicaEngine
from serve.cluster.deployments.retrieval_replica import InTurn
from serve.cluster.replicas.address import ADDRESS_KEY, Address
from serve.cluster.replicas.applications import BOUND_KEY
from serve.cluster.replicas.pool import ReplicaClient
from serve.cluster.replicas.port import Replica

REQUEST = EngineRequest("id", "model", ({"role": "user", "content": "two words"},), 16, False, "salt")


def spec(**options: object) -> EngineSpec:
    return EngineSpec("model", "checkpoint", 100, 0.03, options)


@asynccontextmanager
async def served(kind: str, given: EngineSpec) -> AsyncIterator[tuple[Replica, ReplicaClient, Address]]:
    """A replica of this kind at its port on loopback, and a client of it."""

    async def start() -> FakeReplicaEngine:
        raise AssertionError("the engine has not died")

    engine = await start_engine(kind, given)
    replica = Replica(engine, start, give_up=lambda: None)
    client = ReplicaClient()
    try:
        async with asyncio.timeout(60):
            await replica.open("127.0.0.1")
            yield replica, client, Address(**replica.metadata()[ADDRESS_KEY])
    finally:
        await client.close()
        await replica.close()
    assert engine.dead


async def items_of(client: ReplicaClient, address: Address) -> list[EngineChunk | EngineFault]:
    return [item async for item in client.generate(address, REQUEST)]


async def test_the_fake_says_in_each_reply_that_it_is_one() -> None:
    async with served("fake", spec()) as (replica, client, address):
        *_, last = await items_of(client, address)
        assert replica.metadata()[BOUND_KEY] is None and await replica.count_tokens(REQUEST) == 3
        assert isinstance(last, EngineChunk) and b"This is a fake engine for tests." in last.data


async def test_an_engines_refusal_reaches_the_service_as_a_fault() -> None:
    async with served("fake", EngineSpec("model", "", 1, 0.0, {})) as (_, client, address):
        (fault,) = await items_of(client, address)
        assert isinstance(fault, EngineFault) and (fault.kind, fault.param) == ("rejected", "messages")


async def test_a_replica_whose_engine_is_dead_is_not_healthy() -> None:
    engine = FakeReplicaEngine(engine=FakeEngine())

    async def start() -> FakeReplicaEngine:
        return engine

    replica = Replica(engine, start, give_up=lambda: None)
    replica.check()
    engine.dead = True
    with pytest.raises(EngineFailed):
        replica.check()


@dataclass
class Engine:
    """A fake: it has the jobs that it was given, and ends each when it is told to."""

    has: dict[str, asyncio.Event] = field(default_factory=dict)

    async def compute(self, job: RetrievalJob, *, payer: str) -> Computed:
        name = str(job.texts[0]).strip()
        self.has[name] = asyncio.Event()
        try:
            await self.has[name].wait()
        finally:
            del self.has[name]
        return Computed(1)

    def check(self) -> None: ...

    async def stop(self) -> None: ...


class Here:
    def __init__(self, *, room: int, most: int) -> None:
        self.engine = Engine()
        self.replica = InTurn(self.engine, room=room, most=most)

    def ask(self, payer: str, name: str, size: int = 10) -> asyncio.Task[Computed | EngineFault]:
        job = RetrievalJob("embed", (name.ljust(size),), 32)
        return asyncio.create_task(self.replica.compute(job, payer=payer))

    async def running(self) -> list[str]:
        for _ in range(10):
            await asyncio.sleep(0)
        return sorted(self.engine.has)

    async def ended(self, name: str) -> list[str]:
        self.engine.has[name].set()
        return await self.running()


async def test_one_project_with_many_requests_does_not_keep_another_waiting_behind_them() -> None:
    here = Here(room=20, most=64)
    tasks = [here.ask("many", f"many {number}") for number in range(9)]
    assert await here.running() == ["many 0", "many 1"]
    tasks.append(here.ask("few", "few"))
    assert await here.ended("many 0") == ["few", "many 1"]
    assert await here.ended("many 1") == ["few", "many 2"]
    for task in tasks:
        task.cancel()
    assert await here.running() == []


async def test_who_has_most_waiting_gives_way_and_is_told_so() -> None:
    here = Here(room=10, most=4)
    many = [here.ask("many", f"many {number}") for number in range(4)]
    await here.running()
    refused = await here.ask("many", "many 4")
    assert isinstance(refused, EngineFault) and refused.kind == "unavailable"
    few = here.ask("few", "few")
    await here.running()
    last = await many[3]
    assert isinstance(last, EngineFault) and last.kind == "unavailable" and not few.done()
    for task in [*many, few]:
        task.cancel()
    await here.running()


async def test_what_is_larger_than_the_room_runs_alone_and_is_not_overtaken_for_ever() -> None:
    here = Here(room=20, most=64)
    small = [here.ask("one", "small 0"), here.ask("two", "small 1")]
    await here.running()
    large = here.ask("three", "large", 1000)
    await here.running()
    assert await here.ended("small 0") == ["small 1"]
    assert await here.ended("small 1") == ["large"]
    small.append(here.ask("four", "small 2"))
    assert await here.running() == ["large"] and await here.ended("large") == ["small 2"]
    await here.ended("small 2")
    assert all(isinstance(task.result(), Computed) for task in [*small, large])


@pytest.mark.parametrize("when", ["it waits", "it was begun and not told", "its neighbour ends"])
async def test_who_leaves_gives_the_place_back_whenever_it_is(when: str) -> None:
    here = Here(room=10, most=3)
    first, second = here.ask("one", "first"), here.ask("two", "second")
    await here.running()
    if when == "it was begun and not told":
        # The first leaves, and the second has its place before it knows.
        here.engine.has["first"].set()
        await first
    second.cancel()
    if when == "its neighbour ends":
        first.cancel()
    elif when == "it waits":
        await here.ended("first")
    await here.running()
    third, fourth = here.ask("three", "third"), here.ask("four", "fourth")
    assert await here.running() == ["third"] and await here.ended("third") == ["fourth"]
    await here.ended("fourth")
    assert isinstance(third.result(), Computed) and isinstance(fourth.result(), Computed)
