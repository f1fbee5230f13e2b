"""A replica of two models that take turns, behind a real port and without Ray: what waits for a turn, what is left when
a client goes, and the end of it all."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest

from models.engine import EngineChunk, EngineFault, EngineRequest
from models.engine_kinds import EngineSpec
from models.errors import EngineFailed, EngineUnavailable
from models.fake_engine import FakeReplicaEngine, start
from serve.cluster.replicas.address import ADDRESS_KEY, Address
from serve.cluster.replicas.applications import bound_key
from serve.cluster.replicas.pool import ReplicaClient
from serve.cluster.replicas.shared import SharedReplica
from serve.config.chat_models import ReplicaSettings
from serve.config.server_settings import ServerSettings
from serve.fairness.engine_turns import start_one_after_another
from serve.fairness.model_turns import TurnTerms
from serve.metrics.counts import Counts, TurnMetrics
from tests.serve.cluster.one_replica import FakeEngineHandle
from tests.serve.served import eventually

with warnings.catch_warnings():
    # Ray Serve uses what pydantic is going to remove.
    warnings.simplefilter("ignore", DeprecationWarning)
    from serve.cluster.replicas.engine import RayEngine

QUICK = TurnTerms(0.01, 0.01, 0)
# None ends while a test runs.
LONG = TurnTerms(3600, 3600, 3600)
REQUEST = EngineRequest("id", "a", ({"role": "user", "content": "two words"},), 4, False, "salt")


@dataclass
class Here:
    """`a` is awake."""

    replica: SharedReplica
    client: ReplicaClient
    address: Address
    given_up: asyncio.Event
    engines: dict[str, FakeReplicaEngine]
    counts: Counts

    async def ask(self, model: str) -> EngineChunk | EngineFault:
        request = replace(REQUEST, model_id=model)
        async with aclosing(self.client.generate(self.address, request)) as items:
            *_, last = [item async for item in items]
        return last

    def waiting(self, model: str) -> float:
        """Requests that wait for the model's turn, as `/metrics` shows them."""
        name = "pith_model_turn_requests_waiting"
        return sum(
            value[0]
            for series, value in self.counts.read()
            if series.family.name == name and series.labels["model"] == model
        )

    def seen(self, model: str) -> int:
        return len(self.engines[model].engine.requests)

    def behind_a_handle(self, model: str, **server: Any) -> RayEngine:
        """What the API is given for a model."""
        return RayEngine(
            "model:a+b",
            FakeEngineHandle(self.replica.metadata()),  # type: ignore[arg-type]
            self.client,
            replicas=ReplicaSettings(),
            server=ServerSettings(**server),
            bound_at=bound_key(model),
        )


@asynccontextmanager
async def sharing(terms: TurnTerms) -> AsyncIterator[Here]:
    specs = {model: EngineSpec(model, "", 100, 0.0, {"text": f"I am {model}."}) for model in ("a", "b")}
    engines: Any = await start_one_after_another(
        {model: partial(start, spec) for model, spec in specs.items()}
    )
    given_up, counts = asyncio.Event(), Counts()
    replica = SharedReplica(
        engines, terms, give_up=given_up.set, metrics={}, observer=TurnMetrics(counts, specs, "0")
    )
    client = ReplicaClient()
    async with asyncio.timeout(60):
        await replica.open("127.0.0.1")
        try:
            address = Address(**replica.metadata()[ADDRESS_KEY])
            yield Here(replica, client, address, given_up, engines, counts)
        finally:
            await client.close()
            await replica.close()
    assert all(engine.dead for engine in engines.values())


async def test_both_models_answer_at_one_port_each_by_its_own_engine() -> None:
    async with sharing(QUICK) as here:
        for model in ("a", "b", "a"):
            last = await here.ask(model)
            assert isinstance(last, EngineChunk) and f"I am {model}.".encode() in last.data


async def test_a_request_that_gets_no_turn_in_time_is_told_to_come_back_as_where_a_model_starts() -> None:
    async with sharing(LONG) as here:
        engine = here.behind_a_handle("b", start_wait_s=0.2, retry_after_s=7)
        with pytest.raises(EngineUnavailable, match=r"no replica took the request within 0\.2 s") as caught:
            async for _ in engine.generate(replace(REQUEST, model_id="b")):
                pass
        assert caught.value.retry_after_s == 7 and here.seen("b") == 0


async def test_a_client_that_leaves_before_the_turn_leaves_nothing_behind() -> None:
    async with sharing(LONG) as here:
        waiting = asyncio.create_task(here.ask("b"))
        # Its turn is asked for.
        await eventually(lambda: here.waiting("b") == 1)
        waiting.cancel()
        await eventually(lambda: here.waiting("b") == 0)
        assert here.seen("b") == 0 and (await here.ask("a")).finished  # type: ignore[union-attr]


async def test_prompts_of_a_model_that_sleeps_are_counted_without_waking_it() -> None:
    async with sharing(LONG) as here:
        assert await here.replica.count_tokens(replace(REQUEST, model_id="b")) == 3
        assert here.seen("b") == 0


async def test_an_engine_that_dies_asleep_ends_the_replica() -> None:
    async with sharing(LONG) as here:
        here.replica.check()
        here.engines["b"].dead = True
        with pytest.raises(EngineFailed, match="the engine of b has died"):
            here.replica.check()
        await here.given_up.wait()


async def test_a_replica_whose_swaps_have_ended_is_not_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with sharing(QUICK) as here:

        async def fail() -> None:
            raise RuntimeError("no memory is left")

        monkeypatch.setattr(here.engines["b"], "wake", fail)
        waiting = asyncio.create_task(here.ask("b"))
        await here.given_up.wait()
        await eventually(lambda: _is_unhealthy(here.replica))
        waiting.cancel()


def _is_unhealthy(replica: SharedReplica) -> bool:
    try:
        replica.check()
    except EngineFailed:
        return True
    return False


async def test_a_replica_that_is_not_needed_any_more_ends_what_waits_in_its_turn_first() -> None:
    async with sharing(QUICK) as here:
        gate = asyncio.Event()
        here.engines["a"].engine.sleep = lambda _: gate.wait()
        running = asyncio.create_task(here.ask("a"))
        await eventually(lambda: here.seen("a") == 1)
        waiting = asyncio.create_task(here.ask("b"))
        await eventually(lambda: here.waiting("b") + here.seen("b") == 1)
        closing = asyncio.create_task(here.replica.close())
        gate.set()
        for last in await asyncio.gather(running, waiting):
            assert isinstance(last, EngineChunk) and last.finished
        await closing
