"""Demand of each application of a configuration on Ray and on memory: engines, compressors, the ingress."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from models.engine_kinds import ENGINE_KINDS
from serve.config.capacity.memory import compressor_gb, engine_on_cpus, engine_on_gpus, retrieval_gb
from serve.config.chat_models import ModelSettings
from serve.config.compression_models import CompressionModelSettings
from serve.config.retrieval_models import RetrievalModelSettings
from serve.config.settings import Settings
from serve.config.strict_section import ReplicaCounts


@dataclass(frozen=True, slots=True)
class Bundle:
    """Resources on one machine, taken together. `gpus` is a whole number, or a part of one GPU."""

    cpus: float = 0.0
    gpus: float = 0.0


@dataclass(frozen=True, slots=True)
class Need:
    """Gigabytes of one replica: on each GPU that it has, and in its machine's memory. `trouble`: why it cannot run."""

    gpu_gb: float = 0.0
    memory_gb: float = 0.0
    note: str = ""
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Demand:
    """One application. `kept` replicas are up from the start; `need` is asked with a GPU's gigabytes (0 for none)."""

    name: str
    kept: int
    bundles: tuple[Bundle, ...]
    need: Callable[[float], Need]
    strategy: str = "PACK"
    gpu_type: str | None = None
    # How many there may ever be; how many on one node of a cluster, as far as the configuration says; and whether Ray
    # Serve can keep such a bound, which it has none of for placement groups.
    most: int = 1
    per_node: int | None = None
    takes_bound: bool = True


def demands_of(settings: Settings) -> list[Demand]:
    """In the order in which they are started."""
    ingress = Demand(
        "ingress",
        settings.server.ingress_replicas,
        (Bundle(cpus=1),),
        lambda _: Need(memory_gb=0.16),
        most=settings.server.ingress_replicas,
    )
    return [
        *(_engine(model, len(settings.adapters_of(model.id))) for model in settings.engine_models),
        *(_compressor(model) for model in settings.compression.models),
        *(_retrieval(model) for model in settings.retrieval_models if not model.is_hosted),
        ingress,
    ]


def worker_bundle(model: ModelSettings) -> dict[str, float]:
    """The resources of each worker of an engine, as given to Ray Serve LLM."""
    return {"GPU": model.accelerator.share} if model.accelerator.kind == "gpu" else {"CPU": 1}


def workers_of(model: ModelSettings) -> int:
    """Number of an engine's workers, each with its `worker_bundle`."""
    return (model.engine.tensor_parallel_size or 1) * (model.engine.pipeline_parallel_size or 1)


def placement_group(model: ModelSettings) -> dict[str, Any]:
    """Ray Serve's options for where a replica and its engine's workers go. They are those of
    `LLMServer.get_deployment_options`, which takes an import of vLLM: `tests/serve/cluster/test_placement_group.py`
    compares them."""
    worker = dict(worker_bundle(model))
    if model.accelerator.type:
        worker[f"accelerator_type:{model.accelerator.type}"] = 0.001
    # The replica's own process goes with its first worker.
    first = {"GPU": 0.0, **worker, "CPU": worker.get("CPU", 0) + 1}
    return {
        "placement_group_bundles": [first, *(worker for _ in range(workers_of(model) - 1))],
        "placement_group_strategy": model.replicas.placement_strategy or "PACK",
    }


def _engine(model: ModelSettings, adapters: int) -> Demand:
    accelerator, replicas = model.accelerator, model.replicas
    asked = worker_bundle(model)
    # The replica's own process goes with its first worker.
    bundles = [
        Bundle(cpus=asked.get("CPU", 0.0) + (1.0 if number == 0 else 0.0), gpus=asked.get("GPU", 0.0))
        for number in range(workers_of(model))
    ]
    strategy = replicas.placement_strategy or "PACK"
    return Demand(
        f"model:{model.id}",
        replicas.min,
        tuple(bundles),
        lambda gpu_gb: _engine_need(model, gpu_gb, adapters),
        strategy,
        accelerator.type,
        replicas.max,
        replicas.per_node,
        takes_bound=ENGINE_KINDS[model.engine.kind].module is not None and len(bundles) == 1,
    )


def _engine_need(model: ModelSettings, gpu_gb: float, adapters: int) -> Need:
    on_gpus = model.accelerator.kind == "gpu"
    taken = partial(engine_on_gpus, gpu_gb=gpu_gb) if on_gpus else engine_on_cpus
    found = taken(model, adapters=adapters)
    note = (
        f"weights {found.weights_gb:.1f} + activations {found.activations_gb:.1f} "
        + (f"+ adapters {found.adapters_gb:.1f} " if adapters else "")
        + f"+ KV {max(0, found.cache_gb):.1f} GB: {found.tokens:,} tokens, {found.requests:.1f} full requests"
    )
    trouble = ""
    if found.requests < 1:
        trouble = (
            f"its KV cache holds {found.tokens:,} tokens, and context_length is {model.context_length:,}"
        )
    if on_gpus:
        return Need(gpu_gb=found.reserved_gb, note=note, trouble=trouble)
    return Need(memory_gb=found.reserved_gb, note=note, trouble=trouble)


def _compressor(model: CompressionModelSettings) -> Demand:
    share = model.replicas.gpus
    on_gpu = model.device != "cpu"
    app, bundle = f"compress:{model.id}", Bundle(cpus=1, gpus=share)
    return _network(app, model.replicas, bundle, lambda _: compressor_gb(model), share if on_gpu else None)


def _retrieval(model: RetrievalModelSettings) -> Demand:
    accelerator = model.accelerator
    share = accelerator.share if accelerator.kind == "gpu" else None
    app, bundle = f"retrieval:{model.id}", Bundle(cpus=1, gpus=share or 0)
    taken = partial(retrieval_gb, model)
    return _network(app, model.replicas, bundle, taken, share, gpu_type=accelerator.type)


def _network(
    app: str,
    replicas: ReplicaCounts,
    bundle: Bundle,
    taken: Callable[[float], float],
    share: float | None,
    *,
    gpu_type: str | None = None,
) -> Demand:
    """Replicas that are one process each. `taken`: gigabytes of one, by those of its GPU; `share`: its part of that;
    None: it runs on CPUs."""

    def need(gpu_gb: float) -> Need:
        taken_gb = taken(gpu_gb)
        if share is None:
            return Need(memory_gb=taken_gb)
        share_gb = share * gpu_gb
        trouble = (
            f"it takes {taken_gb:.1f} GB, and its share is {share_gb:.1f}" if taken_gb > share_gb else ""
        )
        return Need(gpu_gb=taken_gb, note=f"{taken_gb:.1f} of {share_gb:.1f} GB", trouble=trouble)

    most, per_node = replicas.max, replicas.per_node
    return Demand(app, replicas.min, (bundle,), need, gpu_type=gpu_type, most=most, per_node=per_node)
