"""The deployment of chat models on vLLM, which Ray Serve LLM starts: it has no engine protocol of ours.

So this shell knows Ray Serve LLM's server, that the server's engine is vLLM, and how vLLM is started again. What it
started answers by `models.engine.ReplicaEngine`, as every engine does. Ray Serve LLM and vLLM are imported in the
replica alone: that takes seconds, and whoever describes the deployment needs neither.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray import serve

from models.adapters import whole_folders
from models.checkpoint import BrokenCheckpoint, fault_of
from models.engine_kinds import ENGINE_KINDS, EngineSpec
from models.grammar.trials import TrialTerms
from models.vllm.core_process import fork_cores, importing, start_forking
from serve.cluster.deployments.chat import ChatReplica, ReplicaTerms
from serve.cluster.deployments.deployment_options import at_most, chat_options
from serve.cluster.deployments.starting import paced
from serve.config.capacity.placement import placement_group, worker_bundle
from serve.config.chat_models import ModelSettings, adapter_source, lora_arguments, max_rank_of
from serve.config.server_settings import TracingSettings
from serve.config.settings import Settings
from serve.config.turns import EngineGroup
from serve.fairness.replica_turns import FairTrials
from serve.logs.outlet import LOGS, LogPlan, Outlet, begin_logs, take_others
from serve.metrics.counts import ReplicaMetrics, metrics_folder, open_replica_metrics
from serve.processes.run_folder import Tell, teller

if TYPE_CHECKING:
    from ray.serve.llm import LLMConfig

    from models.vllm.engine import VLLMEngine

NOTHING_TO_FETCH = "serve.cluster.ray_insides.ray_serve_llm.NothingToFetch"


class VLLMChatReplica(ChatReplica):
    """A `ChatReplica` whose engines are those that Ray Serve LLM's servers have started."""

    @paced
    async def __init__(  # type: ignore[misc]
        self,
        group: EngineGroup,
        specs: Sequence[EngineSpec],
        terms: ReplicaTerms,
        *,
        counts_engine: bool,
        tracing: TracingSettings | None,
        run_folder: Path | None,
    ) -> None:
        outlet, tell = begin_logs(terms.logs), teller(run_folder, group.name)
        # Before seconds are spent on it.
        for spec in specs:
            if fault := fault_of(spec.checkpoint):
                raise BrokenCheckpoint(f"{spec.model_id}: {fault}")
        tell("importing vLLM")
        forks_cores = group.first.accelerator.kind == "cpu"
        if tracing is not None:
            # Where the SDK reads it that vLLM sets up, and only in this process and those that it starts.
            os.environ.update(tracing.engine_environment())
        if forks_cores:
            # It imports vLLM while this process does.
            start_forking()
        with importing():
            import serve.cluster.ray_insides.ray_serve_llm  # noqa: F401

        check_arguments(group.models)
        if forks_cores:
            fork_cores()
        metrics = open_replica_metrics(terms.counts_in, [model.id for model in group.models])
        self._starts = {
            model.id: EngineStart(
                group, model, spec, metrics[0].get(model.id) if counts_engine else None, tracing, outlet, tell
            )
            for model, spec in zip(group.models, specs, strict=True)
        }
        # An engine on a GPU is started again with its whole replica.
        start_again = self._starts[group.first.id].again if forks_cores else None
        turns = group.turns.terms if group.turns else None
        starts = {model: start.first for model, start in self._starts.items()}
        await self.open(starts, start_again, turns, terms, metrics)

    async def __del__(self) -> None:
        try:
            await ChatReplica.__del__(self)
        finally:
            for start in getattr(self, "_starts", {}).values():
                await start.close()


def check_arguments(models: Iterable[ModelSettings]) -> None:
    """Asks vLLM's class of arguments. Raises `ConfigError`."""
    for model in models:
        if model.engine.args:
            from models.vllm.arguments import check

            check(model.engine.args)


class EngineStart:
    """Starts the engine of one model of a group through Ray Serve LLM, and on CPUs again where it has died. `metrics`:
    where vLLM's own statistics are counted."""

    def __init__(
        self,
        group: EngineGroup,
        model: ModelSettings,
        spec: EngineSpec,
        metrics: ReplicaMetrics | None,
        tracing: TracingSettings | None,
        outlet: Outlet,
        tell: Tell,
    ) -> None:
        from serve.cluster.ray_insides.ray_serve_llm import unstarted_server

        config = llm_config(
            group,
            model,
            spec.checkpoint,
            adapters=len(spec.adapters),
            counts=metrics is not None,
            tracing=tracing,
        )
        self._config, self._spec, self._max_rank = config, spec, max_rank_of(model)
        self._take_adapters()
        self._server = unstarted_server(config)
        self._coalesce_s, self._grammar_s = spec.coalesce_s, model.engine.grammar_s
        self._which = f" of {model.id}" if group.turns else ""
        self._metrics, self._outlet, self._tell = metrics, outlet, tell

    async def first(self) -> VLLMEngine:
        self._tell(f"starting the engine{self._which}")
        if self._metrics is not None:
            from models.vllm.insides import count_with

            count_with(self._metrics.families)
        await self._server.start()
        # Ray Serve LLM has put its own in place.
        take_others(self._outlet)
        self._tell(f"generating a first token{self._which}")
        return await self._warmed_up()

    async def again(self) -> VLLMEngine:
        from serve.cluster.ray_insides.ray_serve_llm import fetch_nothing_again

        fetch_nothing_again(self._server)
        # One that was damaged meanwhile would end this start, too.
        self._take_adapters()
        await self._server.start()
        return await self._warmed_up()

    async def close(self) -> None:
        await self._server.__del__()

    def _take_adapters(self) -> None:
        from serve.cluster.ray_insides.ray_serve_llm import serve_adapters

        if self._spec.adapters:
            base = Path(self._spec.checkpoint)
            serve_adapters(
                self._config, whole_folders(self._spec.adapters, max_rank=self._max_rank, base=base)
            )

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


def build_models(
    group: EngineGroup,
    settings: Settings,
    logs: LogPlan = LOGS,
    *,
    checkpoints: Mapping[str, str],
    run_folder: Path | None = None,
    per_node: int | None = None,
) -> Any:
    """The Ray Serve application of one catalog model, or of those that take turns. `checkpoints`: by model, a hub name
    or a folder; `run_folder`: the server's, on its machine, where the steps of the start are told; `per_node`: how many
    of its replicas a node may have."""
    specs = [_spec(model, settings, checkpoints[model.id]) for model in group.models]
    options = chat_options(group, longest_s=settings.server.longest_request_s)
    terms = ReplicaTerms(
        not settings.ray.address,
        settings.ray.replica_ports,
        metrics_folder(settings),
        logs,
        settings.compression.chat.verify_engine_share,
    )
    kind, turns = group.first.engine.kind, group.turns.terms if group.turns else None
    if ENGINE_KINDS[kind].module is not None:
        resources = _resources(group)
        shell = serve.deployment(ChatReplica, **options, **at_most(per_node), ray_actor_options=resources)
        return shell.bind(kind, specs, turns, terms)
    environment = {"runtime_env": {"env_vars": group.environment()}}
    shell = serve.deployment(
        VLLMChatReplica, **options, **placement_group(group.first), ray_actor_options=environment
    )
    return shell.bind(
        group,
        specs,
        terms,
        counts_engine=settings.metrics.engines,
        tracing=settings.tracing.of_engines,
        run_folder=run_folder,
    )


def _spec(model: ModelSettings, settings: Settings, checkpoint: str) -> EngineSpec:
    adapters = tuple(adapter_source(adapter) for adapter in settings.adapters_of(model.id))
    coalesce_s = settings.server.coalesce_ms / 1000
    return EngineSpec(model.id, checkpoint, model.context_length, coalesce_s, model.engine.options, adapters)


def _resources(group: EngineGroup) -> dict[str, Any]:
    """The engine runs in the replica's process, or in processes that this one starts: all that it needs is asked for
    with the replica."""
    model = group.first
    worker = worker_bundle(model)
    return {
        "num_cpus": 1 + worker.get("CPU", 0),
        "num_gpus": worker.get("GPU", 0),
        **({"accelerator_type": model.accelerator.type} if model.accelerator.type else {}),
        "runtime_env": {"env_vars": group.environment()},
    }


def llm_config(
    group: EngineGroup,
    model: ModelSettings,
    checkpoint: str,
    *,
    counts: bool,
    adapters: int = 0,
    tracing: TracingSettings | None = None,
) -> LLMConfig:
    """Settings of a model of the group in the terms of `ray.serve.llm`; `counts`: the engine has statistics, and so it
    has where it traces."""
    from ray.serve.llm import LLMConfig

    engine = model.engine.vllm_arguments()
    if dtype := model.engine.dtype_on(model.accelerator.kind):
        engine["dtype"] = dtype
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
            **({"enable_sleep_mode": True} if group.turns else {}),
            # They cost time for each token.
            "disable_log_stats": not counts and tracing is None,
            **({"otlp_traces_endpoint": tracing.traces_url} if tracing is not None else {}),
        },
        accelerator_type=model.accelerator.type,
        accelerator_config={"kind": model.accelerator.kind} if model.accelerator.kind == "cpu" else None,
        **({"callback_config": {"callback_class": NOTHING_TO_FETCH}} if Path(checkpoint).is_dir() else {}),
        runtime_env={"env_vars": group.environment()},
        log_engine_metrics=False,
        placement_group_config={
            "strategy": replicas.placement_strategy or "PACK",
            "bundle_per_worker": worker_bundle(model),
        }
        if replicas.placement_strategy or model.accelerator.share < 1
        else None,
    )
