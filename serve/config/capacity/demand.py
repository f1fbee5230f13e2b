"""What each application of a configuration asks of Ray, and of memory: the engines, the compressors, the ingress."""

from collections.abc import Callable
from dataclasses import dataclass

from serve.config.capacity.memory import compressor_gb, engine_on_cpus, engine_on_gpus
from serve.config.capacity.placement import Bundle
from serve.config.chat_models import ModelSettings
from serve.config.compression_models import CompressionModelSettings
from serve.config.settings import Settings


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


def demands_of(settings: Settings) -> list[Demand]:
    """In the order in which they are started."""
    ingress = Demand(
        "ingress", settings.server.ingress_replicas, (Bundle(cpus=1),), lambda _: Need(memory_gb=0.16)
    )
    return [
        *(_engine(model) for model in settings.models),
        *(_compressor(model) for model in settings.compression.models),
        ingress,
    ]


def worker_bundle(model: ModelSettings) -> dict[str, float]:
    """The resources of each worker of an engine, as given to Ray Serve LLM."""
    return {"GPU": model.accelerator.share} if model.accelerator.kind == "gpu" else {"CPU": 1}


def _engine(model: ModelSettings) -> Demand:
    engine, accelerator, replicas = model.engine, model.accelerator, model.replicas
    workers = (engine.tensor_parallel_size or 1) * (engine.pipeline_parallel_size or 1)
    asked = worker_bundle(model)
    # The replica's own process goes with its first worker.
    bundles = [
        Bundle(cpus=asked.get("CPU", 0.0) + (1.0 if number == 0 else 0.0), gpus=asked.get("GPU", 0.0))
        for number in range(workers)
    ]
    strategy = replicas.placement_strategy or "PACK"
    return Demand(
        f"model:{model.id}",
        replicas.min,
        tuple(bundles),
        lambda gpu_gb: _engine_need(model, gpu_gb),
        strategy,
        accelerator.type,
    )


def _engine_need(model: ModelSettings, gpu_gb: float) -> Need:
    on_gpus = model.accelerator.kind == "gpu"
    found = engine_on_gpus(model, gpu_gb) if on_gpus else engine_on_cpus(model)
    note = (
        f"weights {found.weights_gb:.1f} + activations {found.activations_gb:.1f} "
        f"+ KV {max(0, found.cache_gb):.1f} GB: {found.tokens:,} tokens"
    )
    trouble = ""
    if found.tokens < model.context_length:
        trouble = (
            f"its KV cache holds {found.tokens:,} tokens, and context_length is {model.context_length:,}"
        )
    if on_gpus:
        return Need(gpu_gb=found.reserved_gb, note=note, trouble=trouble)
    return Need(memory_gb=found.reserved_gb, note=note, trouble=trouble)


def _compressor(model: CompressionModelSettings) -> Demand:
    def need(gpu_gb: float) -> Need:
        taken_gb = compressor_gb(model)
        if model.device == "cpu":
            return Need(memory_gb=taken_gb)
        share_gb = model.replicas.gpus * gpu_gb
        trouble = (
            f"it takes {taken_gb:.1f} GB, and its share is {share_gb:.1f}" if taken_gb > share_gb else ""
        )
        return Need(gpu_gb=taken_gb, note=f"{taken_gb:.1f} of {share_gb:.1f} GB", trouble=trouble)

    bundle = Bundle(cpus=1, gpus=model.replicas.gpus)
    return Demand(f"compress:{model.id}", model.replicas.min, (bundle,), need)
