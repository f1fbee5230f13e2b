"""What ingress processes hear of replicas' caches, over real sockets on loopback: from its replica, and no longer than
that lives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from models.engine import EngineRequest
from models.fake_engine import FakeEngine, FakePrefixCache, FakeReplicaEngine
from serve.cluster.replicas.address import ADDRESS_KEY, Address
from serve.cluster.replicas.cached_beginnings import beginnings
from serve.cluster.replicas.known_caches import KnownCaches
from serve.cluster.replicas.pool import CacheWatch, ReplicaClient, ReplicaGone, ReplyBroken
from serve.cluster.replicas.port import Replica
from tests.serve.cluster.test_replica_port import counted_connections
from tests.serve.served import eventually

DEADLINE_S = 60
NAME = "the replica"


def request(text: str = "a word ", **fields: object) -> EngineRequest:
    messages = ({"role": "user", "content": text * 200},)
    return replace(EngineRequest("id", "model", messages, 4, True, "salt"), **fields)


def engine() -> FakeReplicaEngine:
    return FakeReplicaEngine(engine=FakeEngine(prefix_cache=FakePrefixCache(block=16, most=1000)))


@asynccontextmanager
async def replica(of: FakeReplicaEngine | None = None) -> AsyncIterator[tuple[Replica, Address]]:
    running = Replica(of or engine(), engine_again, give_up=lambda: None)
    await running.open("127.0.0.1")
    try:
        yield running, Address(**running.metadata()[ADDRESS_KEY])
    finally:
        await running.close()


async def engine_again() -> FakeReplicaEngine:
    return engine()


@asynccontextmanager
async def ingress(*addresses: Address) -> AsyncIterator[tuple[ReplicaClient, KnownCaches, CacheWatch]]:
    client, caches = ReplicaClient(), KnownCaches()
    watch = CacheWatch(client)
    names = [f"{NAME} {number}" for number in range(len(addresses))]
    caches.run(names, 0.0)
    watch.follow(caches, dict(zip(names, addresses, strict=True)))
    try:
        yield client, caches, watch
    finally:
        await watch.close()
        await client.close()


async def ask(client: ReplicaClient, address: Address, asked: EngineRequest) -> None:
    async for _ in client.generate(address, asked):
        pass


async def test_every_process_hears_what_one_of_them_has_sent_and_what_was_there_before() -> None:
    first, second = request("one "), request("two ")
    async with replica() as (_, address), ingress(address) as (client, caches, _):
        await ask(client, address, first)
        await eventually(lambda: caches[f"{NAME} 0"].told >= set(beginnings(first)))
        async with ingress(address) as (_, others, _):
            await eventually(lambda: others[f"{NAME} 0"].told == set(beginnings(first)))
            await ask(client, address, second)
            both = {*beginnings(first), *beginnings(second)}
            await eventually(lambda: others[f"{NAME} 0"].told == both)


async def test_a_prompt_that_the_engine_refuses_is_not_told_as_cached() -> None:
    failing = FakeReplicaEngine(engine=FakeEngine(context_length=10))
    kept = request(prompts=(), messages=({"role": "user", "content": "x" * 1000},))
    async with replica(failing) as (_, address), ingress(address) as (client, caches, _):
        await ask(client, address, request())
        await ask(client, address, kept)
        await eventually(lambda: caches[f"{NAME} 0"].told == set(beginnings(kept)))


async def test_a_prompt_is_cached_from_the_first_token_on_while_its_reply_goes_on() -> None:
    slow = engine()
    slow.engine.token_s = 3600
    async with replica(slow) as (_, address), ingress(address) as (client, caches, _):
        reply = client.generate(address, request())
        while not (await anext(reply)).usage.completion_tokens:
            assert not caches[f"{NAME} 0"].told
        await eventually(lambda: caches[f"{NAME} 0"].told == set(beginnings(request())))
        await reply.aclose()


async def test_what_several_choices_found_is_known_at_the_end() -> None:
    slow = engine()
    slow.engine.token_s = 3600
    several = request(options={"n": 2})
    async with replica(slow) as (running, address), ingress(address) as (client, _, _):
        reply = client.generate(address, several)
        while not (await anext(reply)).usage.completion_tokens:
            pass
        assert len(running._contents) == 0
        await reply.aclose()
        slow.engine.token_s = 0
        await ask(client, address, several)
        assert len(running._contents) == len(beginnings(several))


async def test_what_is_dropped_is_told_and_an_engine_that_was_started_again_has_nothing() -> None:
    mortal = engine()
    async with replica(mortal) as (_, address), ingress(address) as (client, caches, _):
        cache = caches[f"{NAME} 0"]
        await ask(client, address, request())
        await eventually(lambda: bool(cache.told))
        mortal.dead = True
        await eventually(lambda: not cache.told)


async def test_a_replica_ends_though_an_ingress_listens() -> None:
    async with replica() as (running, address), ingress(address) as (client, caches, _):
        await ask(client, address, request())
        await eventually(lambda: bool(caches[f"{NAME} 0"].told))
        async with asyncio.timeout(DEADLINE_S):
            await running.close()


async def test_a_replica_that_stops_telling_is_asked_again() -> None:
    async with (
        replica() as (_, address),
        counted_connections(address) as (between, made),
        ingress(between) as (client, caches, _),
    ):
        await ask(client, address, request())
        await eventually(lambda: bool(caches[f"{NAME} 0"].told))
        made[0].transport.abort()
        await eventually(lambda: len(made) == 2)
        await eventually(lambda: caches[f"{NAME} 0"].told == set(beginnings(request())))


async def test_nobody_is_told_without_the_replicas_token() -> None:
    async with replica() as (_, address), ingress() as (client, _, _):
        with pytest.raises(ReplicaGone):
            await anext(client.cached(replace(address, token="0" * len(address.token))))


async def test_a_reply_that_breaks_off_is_told_as_such() -> None:
    async with ingress() as (client, _, _):
        async with replica() as (_, address):
            told = client.cached(address)
            assert [list(keys) for keys in await anext(told)] == [[], []]
        with pytest.raises(ReplyBroken):
            await anext(told)


async def test_a_replica_that_does_not_run_any_more_is_not_asked() -> None:
    async with replica() as (running, address), ingress(address) as (client, caches, watch):
        await ask(client, address, request())
        await eventually(lambda: bool(caches[f"{NAME} 0"].told))
        watch.follow(caches, {})
        # It has nobody left to tell.
        await eventually(lambda: not running._contents._listeners)
