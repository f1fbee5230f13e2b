"""A replica around an engine, which its port, its metadata and its health show; no Ray is needed for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from models.engine import EngineChunk, EngineFault, EngineRequest
from models.engine_kinds import EngineSpec, start_engine
from models.errors import EngineFailed
from models.fake_engine import FakeEngine, FakeReplicaEngine
from serve.cluster.replicas.applications import BOUND_KEY
from serve.cluster.replicas.client import ReplicaClient
from serve.cluster.replicas.port import ADDRESS_KEY, Address, Replica
from serve.fairness.places import Shares

REQUEST = EngineRequest("id", "model", ({"role": "user", "content": "two words"},), 16, False, "salt")


def spec(**options: object) -> EngineSpec:
    return EngineSpec("model", "checkpoint", 100, 0.03, options)


@asynccontextmanager
async def served(kind: str, given: EngineSpec) -> AsyncIterator[tuple[Replica, ReplicaClient, Address]]:
    """A replica of this kind at its port on loopback, and a client of it."""

    async def start() -> FakeReplicaEngine:
        raise AssertionError("the engine has not died")

    engine = await start_engine(kind, given)
    replica = Replica(engine, start, shares=Shares(1, 1), give_up=lambda: None)
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

    replica = Replica(engine, start, shares=Shares(1, 1), give_up=lambda: None)
    replica.check()
    engine.dead = True
    with pytest.raises(EngineFailed):
        replica.check()
