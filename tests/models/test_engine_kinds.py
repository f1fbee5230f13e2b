"""The table of engines: each row can be started."""

from __future__ import annotations

import importlib
import inspect

import pytest

from models.engine import EngineFault, EngineRequest, ReplicaEngine
from models.engine_kinds import ENGINE_KINDS, FAKE, VLLM, EngineSpec, start_engine
from models.errors import EngineFailed, EngineRejected, EngineUnavailable
from models.fake_engine import FakeEngine, FakeReplicaEngine

SPEC = EngineSpec("model", "checkpoint", 100, 0.03, {"text": "a b"})


@pytest.mark.parametrize("kind", sorted(set(ENGINE_KINDS) - {VLLM}))
def test_each_engine_that_starts_itself_has_a_module_that_starts_it(kind: str) -> None:
    module = ENGINE_KINDS[kind].module
    assert module is not None and inspect.iscoroutinefunction(importlib.import_module(module).start)


async def test_the_fake_is_a_replicas_engine_and_dies_when_stopped() -> None:
    engine: ReplicaEngine = await start_engine(FAKE, SPEC)
    await engine.stop()
    assert engine.dead


@pytest.mark.parametrize(
    "error",
    [EngineRejected("no", param="stop"), EngineUnavailable("busy", retry_after_s=3), EngineFailed("died")],
)
async def test_a_fault_is_the_exception_that_it_stands_for(
    error: EngineRejected | EngineUnavailable | EngineFailed,
) -> None:
    engine = FakeReplicaEngine(engine=FakeEngine(fails_with=error))
    request = EngineRequest("id", "m", ({"role": "user", "content": "hi"},), 5, False, "salt")
    (fault,) = [item async for item in engine.generate(request)]
    assert isinstance(fault, EngineFault) and fault == await engine.count_tokens(request)
    assert type(fault.error()) is type(error) and vars(fault.error()) == vars(error)
    assert str(fault.error()) == str(error)
