"""The deployment of one catalog model: Ray Serve LLM's server with a method that streams bytes and usage."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from ray.serve.llm import LLMConfig, LLMServer, build_llm_deployment

from models.engine import EngineChunk, EngineFault, EngineRequest
from models.lasting_chat import LastingChat
from models.vllm.core_process import fork_cores
from serve.cluster.replicas.applications import BOUND_KEY, HEALTH_CHECK_PERIOD_S, HEALTH_CHECK_TIMEOUT_S
from serve.cluster.replicas.router import ReplicaRouter
from serve.cluster.replicas.server import ADDRESS_KEY, ReplicaPort
from serve.config.capacity.demand import worker_bundle
from serve.config.chat_models import ModelSettings, shares_of
from serve.fairness.generation import FairGeneration
from serve.fairness.places import Shares
from serve.money.prompt_bound import proven_bound
from serve.processes.garbage_collection import freeze_heap

if TYPE_CHECKING:
    from models.vllm.engine import VLLMChat

NOTHING_TO_FETCH = "serve.cluster.deployments.engine.NothingToFetch"


class ChatReplica(LLMServer):
    """A vLLM engine's replica. Its logic is `models.vllm.engine.VLLMChat`."""

    async def __init__(  # type: ignore[misc]
        self, llm_config: LLMConfig, *, coalesce_s: float, shares: Shares, forks_cores: bool
    ) -> None:
        from serve.cluster.deployments.engine import engine_class

        if forks_cores:
            fork_cores()
        await super().__init__(llm_config, engine_cls=engine_class(llm_config))
        self._coalesce_s = coalesce_s
        first = await self._warmed_up()
        making = first.prompt_making
        bound = proven_bound(making) if making is not None else None
        # Of every engine that follows too: template and tokenizer stay.
        self._bound = asdict(bound) if bound is not None else None
        self._chat = LastingChat(
            first,
            self._start_again if forks_cores else _no_other_engine,
            give_up=self._make_way,
        )
        places = self.engine._engine_client.vllm_config.scheduler_config.max_num_seqs
        self._fair = FairGeneration(self._chat.generate, places=places, shares=shares)
        freeze_heap()
        self._port = ReplicaPort(self.generate)
        self._address = await self._port.open(ray.util.get_node_ip_address())
        self._keeping_up = asyncio.create_task(self._chat.keep_up())

    async def _warmed_up(self) -> VLLMChat:
        from models.vllm.engine import VLLMChat

        engine = self.engine
        name = self._llm_config.model_id
        chat = VLLMChat(name, engine._oai_serving_chat, engine._engine_client, coalesce_s=self._coalesce_s)
        await chat.warm_up()
        return chat

    async def _start_again(self) -> VLLMChat:
        self.engine._engine_client.shutdown()
        # What the first start fetched is there.
        self._llm_config.get_or_create_callback().ctx.run_init_node = False
        await self.start()
        return await self._warmed_up()

    async def record_replica_metadata(self) -> dict[str, Any]:
        """Asked by Ray Serve once; every handle's process gets to know it."""
        return {ADDRESS_KEY: asdict(self._address), BOUND_KEY: self._bound}

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineChunk | EngineFault, None]:
        async with aclosing(self._fair.generate(request)) as items:
            async for item in items:
                yield item

    async def awake(self) -> None:
        """Answered by a replica that runs: Ray starts one for it."""

    async def count_tokens(self, request: EngineRequest) -> int | EngineFault:
        return await self._chat.count_tokens(request)

    async def check_health(self) -> None:
        # A replica that starts its engine again is looked after already.
        if self._chat.is_up:
            await super().check_health()

    def _make_way(self) -> None:
        """End this process, so that Ray starts another at once instead of after three failed health checks."""
        os._exit(1)

    async def __del__(self) -> None:
        # The running requests end first. Ray bounds the time for that.
        await self._port.close()
        self._keeping_up.cancel()
        await super().__del__()


async def _no_other_engine() -> VLLMChat:
    raise RuntimeError("an engine on a GPU is started again with its whole replica")


def build_model(model: ModelSettings, checkpoint: str, *, coalesce_s: float, longest_s: float) -> Any:
    """The Ray Serve application of one catalog model. `checkpoint` is a hub name or a folder; `longest_s` is what a
    replica that is not needed any more gets to end its requests."""
    return build_llm_deployment(
        llm_config(model, checkpoint, longest_s=longest_s),
        name_prefix="",
        bind_kwargs={
            "coalesce_s": coalesce_s,
            "shares": shares_of(model.replicas),
            "forks_cores": model.accelerator.kind == "cpu",
        },
        deployment_cls=ChatReplica,
    )


def llm_config(model: ModelSettings, checkpoint: str, *, longest_s: float) -> LLMConfig:
    """A model's settings in the terms of `ray.serve.llm`."""
    engine = model.engine.model_dump(exclude_none=True)
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
        deployment_config={
            "name": model.id.replace("/", "--"),
            "autoscaling_config": {
                "min_replicas": replicas.min,
                "initial_replicas": replicas.min,
                "max_replicas": replicas.max,
                "target_ongoing_requests": replicas.target_ongoing_requests,
                "downscale_delay_s": replicas.idle_s,
                "downscale_to_zero_delay_s": replicas.idle_s,
                "upscale_delay_s": 0,
                "metrics_interval_s": 2,
                "look_back_period_s": 4,
            },
            "max_ongoing_requests": replicas.max_ongoing_requests,
            "max_queued_requests": replicas.max_queued_requests,
            "health_check_period_s": HEALTH_CHECK_PERIOD_S,
            "health_check_timeout_s": HEALTH_CHECK_TIMEOUT_S,
            "graceful_shutdown_timeout_s": longest_s,
            "request_router_config": {
                "request_router_class": ReplicaRouter,
                "request_router_kwargs": {"routing": replicas.routing},
            },
        },
        # By name, since this process need not import it.
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
