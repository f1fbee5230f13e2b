"""A chat model's settings in the terms of Ray Serve LLM. For the model's replica alone, since it imports vLLM."""

from pathlib import Path

from ray.serve.llm import LLMConfig

from serve.config.adapters import lora_arguments
from serve.config.capacity.demand import worker_bundle
from serve.config.chat_models import ModelSettings
from serve.tracing.collector import TracingTerms

NOTHING_TO_FETCH = "serve.cluster.ray_insides.ray_serve_llm.NothingToFetch"


def llm_config(
    model: ModelSettings,
    checkpoint: str,
    *,
    counts: bool,
    adapters: int = 0,
    tracing: TracingTerms | None = None,
) -> LLMConfig:
    """A model's settings in the terms of `ray.serve.llm`; `counts`: the engine has statistics, and so it has where it
    traces."""
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
