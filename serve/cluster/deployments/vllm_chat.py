"""The deployment of a chat model on vLLM, which Ray Serve LLM starts: it has no engine protocol of ours.

So this shell knows Ray Serve LLM's server, that the server's engine is vLLM, and how vLLM is started again. What it
started answers by `models.engine.ReplicaEngine`, as every engine does. Ray Serve LLM and vLLM are imported in the
replica alone: that takes seconds, and whoever describes the deployment needs neither.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray import serve

from models.adapters import read_adapter
from models.engine_kinds import ENGINE_KINDS, EngineSpec
from models.grammar.trials import TrialTerms
from models.vllm.core_process import fork_cores, importing, start_forking
from serve.cluster.deployments.chat import ChatReplica, ReplicaTerms
from serve.cluster.deployments.deployment_options import at_most, chat_options
from serve.config.capacity.placement import placement_group, worker_bundle
from serve.config.chat_models import ModelSettings, adapter_source, lora_arguments, max_rank_of
from serve.config.server_settings import TracingSettings
from serve.config.settings import Settings
from serve.fairness.replica_turns import FairTrials
from serve.logs.outlet import LOGS, LogPlan, begin_logs, take_others
from serve.metrics.counts import metrics_folder, open_replica_metrics
from serve.processes.run_folder import teller

if TYPE_CHECKING:
    from ray.serve.llm import LLMConfig

    from models.vllm.engine import VLLMEngine

NOTHING_TO_FETCH = "serve.cluster.ray_insides.ray_serve_llm.NothingToFetch"


class VLLMChatReplica(ChatReplica):
    """A `ChatReplica` whose engine is the one that Ray Serve LLM's server has started."""

    async def __init__(  # type: ignore[misc]
        self,
        model: ModelSettings,
        spec: EngineSpec,
        terms: ReplicaTerms,
        *,
        counts_engine: bool,
        tracing: TracingSettings | None,
        run_folder: Path | None,
    ) -> None:
        outlet, tell = begin_logs(terms.logs), teller(run_folder, model.id)
        tell("importing vLLM")
        forks_cores = model.accelerator.kind == "cpu"
        if tracing is not None:
            # Where the SDK reads it that vLLM sets up, and only in this process and those that it starts.
            os.environ.update(tracing.engine_environment())
        if forks_cores:
            # It imports vLLM while this process does.
            start_forking()
        with importing():
            from serve.cluster.ray_insides.ray_serve_llm import serve_adapters, unstarted_server

        if model.engine.args:
            from models.vllm.arguments import check

            check(model.engine.args)
        metrics = open_replica_metrics(terms.counts_in, model.id)
        families = metrics.families if metrics is not None and counts_engine else None
        if families is not None:
            from models.vllm.insides import count_with

            count_with(families)
        if forks_cores:
            fork_cores()
        config = llm_config(
            model, spec.checkpoint, adapters=len(spec.adapters), counts=families is not None, tracing=tracing
        )
        if spec.adapters:
            serve_adapters(config, folders_of(spec, max_rank=max_rank_of(model)))
        self._server, self._coalesce_s = unstarted_server(config), spec.coalesce_s
        self._grammar_s = model.engine.grammar_s
        tell("starting the engine")
        await self._server.start()
        # Ray Serve LLM has put its own in place.
        take_others(outlet)
        # An engine on a GPU is started again with its whole replica.
        start_again = self._start_again if forks_cores else None
        tell("generating a first token")
        await self.open(await self._warmed_up(), start_again, terms, metrics)

    async def _warmed_up(self) -> VLLMEngine:
        from models.vllm.engine import VLLMEngine
        from models.vllm.insides import read_environment_once
        from serve.cluster.ray_insides.ray_serve_llm import started_engine

        started = started_engine(self._server)
        engine = VLLMEngine(
            started.model_id,
            started.serving_chat,
            started.client,
            coalesce_s=self._coalesce_s,
            trial_turns=FairTrials(),
            trial_terms=TrialTerms(cpu_s=self._grammar_s),
        )
        await engine.warm_up()
        read_environment_once()
        return engine

    async def _start_again(self) -> VLLMEngine:
        from serve.cluster.ray_insides.ray_serve_llm import fetch_nothing_again

        fetch_nothing_again(self._server)
        await self._server.start()
        return await self._warmed_up()

    async def __del__(self) -> None:
        try:
            await ChatReplica.__del__(self)
        finally:
            if (server := getattr(self, "_server", None)) is not None:
                await server.__del__()


def folders_of(spec: EngineSpec, *, max_rank: int) -> dict[str, Path]:
    """Folders of the adapters here, by id. Raises `models.adapters.BrokenAdapter` before an engine is started."""
    folders = {adapter.id: adapter.fetch() for adapter in spec.adapters}
    for model_id, folder in folders.items():
        read_adapter(model_id, folder, max_rank=max_rank, base=Path(spec.checkpoint))
    return folders


def build_model(
    model: ModelSettings,
    settings: Settings,
    logs: LogPlan = LOGS,
    *,
    checkpoint: str,
    run_folder: Path | None = None,
    per_node: int | None = None,
) -> Any:
    """The Ray Serve application of one catalog model, whatever its engine. `checkpoint` is a hub name or a folder;
    `run_folder`: the server's, on its machine, where the steps of the start are told; `per_node`: how many of its
    replicas a node may have."""
    adapters = tuple(adapter_source(adapter) for adapter in settings.adapters_of(model.id))
    coalesce_s = settings.server.coalesce_ms / 1000
    spec = EngineSpec(model.id, checkpoint, model.context_length, coalesce_s, model.engine.options, adapters)
    options = chat_options(model, longest_s=settings.server.longest_request_s)
    terms = ReplicaTerms(not settings.ray.address, settings.ray.replica_ports, metrics_folder(settings), logs)
    if ENGINE_KINDS[model.engine.kind].module is not None:
        resources = _resources(model)
        shell = serve.deployment(ChatReplica, **options, **at_most(per_node), ray_actor_options=resources)
        return shell.bind(model.engine.kind, spec, terms)
    environment = {"runtime_env": {"env_vars": model.engine_environment()}}
    shell = serve.deployment(
        VLLMChatReplica, **options, **placement_group(model), ray_actor_options=environment
    )
    return shell.bind(
        model,
        spec,
        terms,
        counts_engine=settings.metrics.engines,
        tracing=settings.tracing.of_engines,
        run_folder=run_folder,
    )


def _resources(model: ModelSettings) -> dict[str, Any]:
    """The engine runs in the replica's process, or in processes that this one starts: all that it needs is asked for
    with the replica."""
    worker = worker_bundle(model)
    return {
        "num_cpus": 1 + worker.get("CPU", 0),
        "num_gpus": worker.get("GPU", 0),
        **({"accelerator_type": model.accelerator.type} if model.accelerator.type else {}),
        "runtime_env": {"env_vars": model.engine_environment()},
    }


def llm_config(
    model: ModelSettings,
    checkpoint: str,
    *,
    counts: bool,
    adapters: int = 0,
    tracing: TracingSettings | None = None,
) -> LLMConfig:
    """A model's settings in the terms of `ray.serve.llm`; `counts`: the engine has statistics, and so it has where it
    traces."""
    from ray.serve.llm import LLMConfig

    engine = model.engine.vllm_arguments()
    if model.revision is not None:
        engine |= {"revision": model.revision, "tokenizer_revision": model.revision}
    replicas = model.replicas
    return LLMConfig(
        model_loading_config={"model_id": model.id, "model_source": checkpoint},
        engine_kwargs={
            **engine,
            **lora_arguments(model, adapters),
            "max_model_len": model.context_length,
            "load_format": "safetensors",
            "trust_remote_code": False,
            # What is paused waits behind all others (`models.vllm.lending`).
            "scheduling_policy": "priority",
            # They cost time for each token.
            "disable_log_stats": not counts and tracing is None,
            **({"otlp_traces_endpoint": tracing.traces_url} if tracing is not None else {}),
        },
        accelerator_type=model.accelerator.type,
        accelerator_config={"kind": model.accelerator.kind} if model.accelerator.kind == "cpu" else None,
        **({"callback_config": {"callback_class": NOTHING_TO_FETCH}} if Path(checkpoint).is_dir() else {}),
        runtime_env={"env_vars": model.engine_environment()},
        log_engine_metrics=False,
        placement_group_config={
            "strategy": replicas.placement_strategy or "PACK",
            "bundle_per_worker": worker_bundle(model),
        }
        if replicas.placement_strategy or model.accelerator.share < 1
        else None,
    )
