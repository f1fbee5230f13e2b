"""The deployment of a chat model on vLLM, which Ray Serve LLM places and starts: it has no engine protocol of ours.

So this shell knows Ray Serve LLM's server, that the server's engine is vLLM, and how vLLM is started again. What it
started answers by `models.engine.ReplicaEngine`, as every engine does.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray.serve.llm import LLMConfig, LLMServer, build_llm_deployment

from models.engine_kinds import EngineSpec
from models.vllm.core_process import fork_cores
from serve.cluster.deployments.chat import ChatReplica
from serve.config.capacity.demand import worker_bundle
from serve.config.chat_models import ModelSettings
from serve.fairness.places import Shares

if TYPE_CHECKING:
    from models.vllm.engine import VLLMEngine

# By name, since the process that builds the application imports no vLLM.
NOTHING_TO_FETCH = "serve.cluster.ray_insides.ray_serve_llm.NothingToFetch"


class VLLMChatReplica(ChatReplica, LLMServer):
    """A `ChatReplica` whose engine is the one that Ray Serve LLM's server has started."""

    async def __init__(  # type: ignore[misc]
        self,
        llm_config: LLMConfig,
        *,
        coalesce_s: float,
        shares: Shares,
        forks_cores: bool,
        on_loopback: bool,
    ) -> None:
        from serve.cluster.ray_insides.ray_serve_llm import engine_class

        if forks_cores:
            fork_cores()
        await LLMServer.__init__(self, llm_config, engine_cls=engine_class(llm_config))
        self._coalesce_s = coalesce_s
        # An engine on a GPU is started again with its whole replica.
        start_again = self._start_again if forks_cores else None
        await self.open(await self._warmed_up(), start_again, shares=shares, on_loopback=on_loopback)

    async def _warmed_up(self) -> VLLMEngine:
        from models.vllm.engine import VLLMEngine
        from serve.cluster.ray_insides.ray_serve_llm import started_engine

        started = started_engine(self)
        engine = VLLMEngine(
            started.model_id, started.serving_chat, started.client, coalesce_s=self._coalesce_s
        )
        await engine.warm_up()
        return engine

    async def _start_again(self) -> VLLMEngine:
        from serve.cluster.ray_insides.ray_serve_llm import fetch_nothing_again

        fetch_nothing_again(self)
        await self.start()
        return await self._warmed_up()

    async def __del__(self) -> None:
        try:
            await ChatReplica.__del__(self)
        finally:
            await LLMServer.__del__(self)


def build_vllm_model(
    model: ModelSettings, spec: EngineSpec, options: dict[str, Any], given: dict[str, Any]
) -> Any:
    """The application of `build_model`: `options` are Ray Serve's, `given` is passed on to the replica."""
    return build_llm_deployment(
        llm_config(model, spec.checkpoint, options),
        name_prefix="",
        bind_kwargs={**given, "coalesce_s": spec.coalesce_s, "forks_cores": model.accelerator.kind == "cpu"},
        deployment_cls=VLLMChatReplica,
    )


def llm_config(model: ModelSettings, checkpoint: str, options: dict[str, Any]) -> LLMConfig:
    """A model's settings in the terms of `ray.serve.llm`."""
    engine = model.engine.vllm_arguments()
    if model.revision is not None:
        engine |= {"revision": model.revision, "tokenizer_revision": model.revision}
    replicas = model.replicas
    return LLMConfig(
        model_loading_config={"model_id": model.id, "model_source": checkpoint},
        engine_kwargs={
            **engine,
            "max_model_len": model.context_length,
            "load_format": "safetensors",
            "trust_remote_code": False,
        },
        accelerator_type=model.accelerator.type,
        accelerator_config={"kind": model.accelerator.kind} if model.accelerator.kind == "cpu" else None,
        deployment_config=options,
        **({"callback_config": {"callback_class": NOTHING_TO_FETCH}} if Path(checkpoint).is_dir() else {}),
        runtime_env={"env_vars": dict(model.environment)},
        log_engine_metrics=False,
        placement_group_config={
            "strategy": replicas.placement_strategy or "PACK",
            "bundle_per_worker": worker_bundle(model),
        }
        if replicas.placement_strategy or model.accelerator.share < 1
        else None,
    )
