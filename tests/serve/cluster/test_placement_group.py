"""Where a chat model's replica goes is what Ray Serve LLM would say, and saying so imports neither it nor vLLM."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from models.engine_kinds import WORKER_SHARE_VARIABLE
from serve.config.capacity.placement import placement_group
from serve.config.chat_models import ModelSettings
from tests.vendor_source import text

GPU = {"kind": "gpu", "type": "H100"}
MODELS: dict[str, dict[str, Any]] = {
    "a CPU": {"accelerator": {"kind": "cpu"}},
    "two workers on CPUs": {"accelerator": {"kind": "cpu"}, "engine": {"tensor_parallel_size": 2}},
    "a GPU": {"accelerator": {"kind": "gpu"}},
    "a GPU of a type": {"accelerator": GPU},
    "a share of a GPU": {
        "accelerator": {**GPU, "share": 0.5},
        "engine": {"gpu_memory_utilization": 0.45, "kv_cache_memory_bytes": 2**30},
    },
    "four GPUs": {"accelerator": GPU, "engine": {"tensor_parallel_size": 4}},
    "two stages of two GPUs": {
        "accelerator": GPU,
        "engine": {"tensor_parallel_size": 2, "pipeline_parallel_size": 2},
    },
    "a strategy": {"accelerator": GPU, "replicas": {"placement_strategy": "STRICT_PACK"}},
}


def model(given: dict[str, Any]) -> ModelSettings:
    price = {"input_usd_per_mtok": "1", "output_usd_per_mtok": "1", "minimum_request_usd": "0"}
    names = {"id": "m", "name": "M", "blurb": "b", "checkpoint": "org/m", "context_length": 1024}
    return ModelSettings.model_validate({**names, "price": price, **given})


ON_GPUS = {name: given for name, given in MODELS.items() if given.get("accelerator", {}).get("kind") == "gpu"}


@pytest.mark.parametrize("given", ON_GPUS.values(), ids=ON_GPUS)
def test_a_worker_asks_ray_for_the_part_of_a_gpu_that_its_bundle_has(given: dict[str, Any]) -> None:
    asked = text("vllm.v1.executor.ray_executor_v2", "RayExecutorV2._get_actor_resource_kwargs")
    assert f"num_devices = envs.{WORKER_SHARE_VARIABLE}" in asked and "{'num_gpus': num_devices}" in asked
    described = model(given)
    part = float(described.engine_environment().get(WORKER_SHARE_VARIABLE, 1))
    assert part == placement_group(described)["placement_group_bundles"][0]["GPU"]


def test_a_deployment_is_described_without_vllm() -> None:
    heavy = "[each for each in ('vllm', 'torch', 'ray.llm') if each in sys.modules]"
    code = f"import sys; from serve.cluster.deployments import vllm_chat; print({heavy})"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_a_replica_goes_where_ray_serve_llm_would_put_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray
    from ray.serve.llm import LLMServer

    from serve.cluster.deployments.vllm_chat import llm_config

    # Outside a cluster there is none.
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(runtime_env={}))
    settings = model(MODELS[name])
    theirs = LLMServer.get_deployment_options(llm_config(settings, "org/m", counts=False))
    ours = placement_group(settings)
    assert ours["placement_group_strategy"] == theirs["placement_group_strategy"]
    assert _asked(ours) == _asked(theirs)


def _asked(options: dict[str, Any]) -> list[dict[str, float]]:
    """What each bundle asks for, without what it asks none of."""
    return [
        {key: value for key, value in each.items() if value} for each in options["placement_group_bundles"]
    ]
