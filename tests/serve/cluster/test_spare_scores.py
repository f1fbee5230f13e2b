"""Scores of replies over a replica's real port: what arrives, what a busy or ending replica does, and who refuses."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from models.engine import EngineFault, EngineRequest
from models.errors import EngineFailed, EngineRejected, EngineUnavailable
from models.fake_engine import FakeEngine, FakeReplicaEngine
from serve.cluster.replicas.address import Address, address_of
from serve.cluster.replicas.pool import ReplicaClient
from serve.cluster.replicas.port import Replica
from serve.cluster.replicas.spare_scores import scored_reply
from serve.config.chat_models import ReplicaSettings
from serve.config.server_settings import ServerSettings
from tests.serve.cluster.one_replica import FakeEngineHandle
from tests.serve.cluster.test_shared_replica import QUICK, sharing
from tests.serve.served import eventually

with warnings.catch_warnings():
    # Ray Serve uses what pydantic is going to remove.
    warnings.simplefilter("ignore", DeprecationWarning)
    from serve.cluster.replicas.engine import RayEngine

REQUEST = EngineRequest("id", "model", ({"role": "user", "content": "two words"},), 16, False, "salt")
REPLY = (7, 0, 2**31)


@dataclass
class Here:
    """A replica with one engine, and what the API is given for its model."""

    engine: FakeEngine
    replica: Replica
    client: ReplicaClient
    address: Address
    ray: RayEngine


@asynccontextmanager
async def one(*, share: float = 0.5) -> AsyncIterator[Here]:
    engine, client = FakeEngine(), ReplicaClient()
    replica = Replica(FakeReplicaEngine(engine=engine), None, give_up=lambda: None, spare_share=share)
    await replica.open("127.0.0.1")
    handle: Any = FakeEngineHandle(replica.metadata())
    settings = ServerSettings(
        start_wait_s=30, stall_s=30, progress_s=30, longest_request_s=30, retry_after_s=1
    )
    ray = RayEngine("model:a", handle, client, replicas=ReplicaSettings(), server=settings)
    address = address_of(replica.metadata())
    try:
        async with asyncio.timeout(60):
            yield Here(engine, replica, client, address, ray)
    finally:
        await client.close()
        await replica.close()


async def test_a_score_arrives_as_the_engine_gave_it() -> None:
    async with one() as here:
        found = await here.ray.score(REQUEST, REPLY)
        assert found == await FakeEngine().score(REQUEST, REPLY)
        ((asked, reply),) = here.engine.scored
        assert (asked.messages, reply) == (REQUEST.messages, REPLY)
        # Nothing was generated for it.
        assert here.engine.requests == []


async def test_replies_at_a_tier_are_scored() -> None:
    async with one() as here:
        asked = replace(REQUEST, tier="flex")
        await here.ray.score(asked, REPLY)
        assert [(found.tier, reply) for found, reply in here.engine.scored] == [("flex", REPLY)]


async def test_it_waits_while_somebody_is_answered_and_says_that_it_lives() -> None:
    async with one() as here:
        gate = asyncio.Event()
        here.engine.sleep = lambda _: gate.wait()
        answering = asyncio.create_task(ended(here, REQUEST))
        await eventually(lambda: here.engine.requests)
        items = here.client.generate(here.address, replace(REQUEST, score=REPLY))
        signs = [await anext(items) for _ in range(2)]
        assert [not isinstance(sign, EngineFault) and sign.finished for sign in signs] == [False, False]
        assert here.engine.scored == []
        gate.set()
        await answering
        *_, last = [item async for item in items]
        assert not isinstance(last, EngineFault) and scored_reply(last.data).prompt_tokens == 3


async def ended(here: Here, request: EngineRequest) -> None:
    async for _ in here.client.generate(here.address, request):
        pass


async def test_a_replica_that_ends_does_not_wait_for_scores() -> None:
    async with one(share=0.0) as here:
        scoring = asyncio.create_task(here.ray.score(REQUEST, REPLY))
        await eventually(lambda: here.replica._scores._scoring)
        await here.replica.close()
        with pytest.raises(EngineUnavailable, match="ending"):
            await scoring


async def test_who_gives_up_leaves_nothing_behind() -> None:
    async with one(share=0.0) as here:
        scoring = asyncio.create_task(here.ray.score(REQUEST, REPLY))
        await eventually(lambda: here.replica._scores._scoring)
        scoring.cancel()
        await asyncio.gather(scoring, return_exceptions=True)
        await eventually(lambda: not here.replica._scores._scoring)


async def test_what_goes_wrong_has_a_name() -> None:
    async with one() as here:
        here.engine.fails_with = EngineRejected("no room", param="messages", is_too_long=True)
        with pytest.raises(EngineRejected) as refused:
            await here.ray.score(REQUEST, REPLY)
        assert refused.value.is_too_long
        nobody = replace(here.address, port=1)
        for metadata, error in (({}, EngineUnavailable), (nobody.metadata(), EngineFailed)):
            handle: Any = FakeEngineHandle(metadata)
            gone = RayEngine(
                "model:a", handle, here.client, replicas=ReplicaSettings(), server=ServerSettings()
            )
            with pytest.raises(error):
                await gone.score(REQUEST, REPLY)


async def test_a_score_tells_nothing_of_what_the_cache_has() -> None:
    async with one() as here:
        await here.ray.score(replace(REQUEST, messages=({"role": "user", "content": "x" * 4096},)), REPLY)
        assert len(here.replica._contents) == 0


async def test_models_that_take_turns_score_nothing() -> None:
    async with sharing(QUICK) as here:
        items = here.client.generate(here.address, replace(REQUEST, model_id="a", score=REPLY))
        (fault,) = [item async for item in items]
        assert isinstance(fault, EngineFault) and fault.kind == "rejected"
