"""The engines that a model's `engine.kind` may name, and how a replica starts one. A new backend is a row here."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from models.adapters import AdapterSource
from models.engine import MAX_STOP_STRINGS, ReplicaEngine

# Of a replica's environment: what an engine would refuse, if it were not told that requests are checked before.
ENGINE_LIMITS: Mapping[str, str] = {"VLLM_MAX_STOP_STRINGS": str(MAX_STOP_STRINGS)}
# Seconds that vLLM's processes spin when they wait for each other (`models.vllm.plugin`).
SPIN_VARIABLE = "PITH_ENGINE_SPIN_S"
# Part of a GPU that vLLM's core asks Ray for, for each worker; default: 1, which does not fit into a share
# (`vllm.v1.executor.ray_executor_v2`). Ray Serve LLM sets it for its own tasks alone.
WORKER_SHARE_VARIABLE = "VLLM_RAY_PER_WORKER_GPUS"


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """The parameters of an engine's start. `options` are its own, under its own names."""

    model_id: str
    checkpoint: str
    context_length: int
    coalesce_s: float
    options: Mapping[str, Any]
    # That it serves beside the model itself.
    adapters: tuple[AdapterSource, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineKind:
    """`module` has `async def start(spec: EngineSpec) -> ReplicaEngine`, and is imported by replicas alone. None: Ray
    Serve LLM starts the engine (`serve.cluster.deployments.vllm_chat`), which knows how to place it on several GPUs."""

    module: str | None
    computes: bool = True


VLLM, FAKE = "vllm", "fake"
ENGINE_KINDS: dict[str, EngineKind] = {
    VLLM: EngineKind(module=None),
    FAKE: EngineKind(module="models.fake_engine", computes=False),
}


async def start_engine(kind: str, spec: EngineSpec) -> ReplicaEngine:
    """A started engine that has a module of its own. Raises what its `start` raises."""
    module = ENGINE_KINDS[kind].module
    assert module is not None, f"{kind} is started by Ray Serve LLM"
    return cast(ReplicaEngine, await importlib.import_module(module).start(spec))
