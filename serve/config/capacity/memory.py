"""How much memory a model takes: weights, KV cache and activations, in gigabytes (10^9 bytes); all of it estimates.

Weights and the cache's size a token come from the configuration, or from a checkpoint on this machine.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compression.scorers.kinds import KINDS
from serve.config.chat_models import ModelSettings
from serve.config.compression_models import PACKAGED_CHECKPOINTS, CompressionModelSettings

GB = 1e9
GIB_IN_GB = 2**30 / GB
# Processes without weights and cache, as `python -m benchmarks.startup` finds them.
ENGINE_PROCESSES_GB = 1.2
COMPRESSOR_PROCESSES_GB = 0.5
SERVER_PROCESSES_GB = 1.5
ENGINE_ACTIVATIONS_GB = {"cpu": 0.3, "gpu": 4.0}
# Of a network in a process of its own on a GPU: CUDA's context, and a batch of windows.
CUDA_CONTEXT_GB = 0.5
NETWORK_ACTIVATIONS_GB = 1.0
# vLLM's own, where the configuration does not say.
GPU_UTILIZATION = 0.92
CPU_CACHE_VARIABLE, CPU_CACHE_GIB = "VLLM_CPU_KVCACHE_SPACE", 4.0
EMBEDDED, EMBEDDED_CHAT = "embedded:", Path(__file__).parents[3] / "models/embedded/checkpoints"


class UnknownSize(Exception):
    """The checkpoint is not on this machine, and the configuration does not say how large it is."""


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """Of one replica. `tokens` is what its KV cache holds; each of its GPUs is taken up to `reserved_gb`."""

    weights_gb: float
    activations_gb: float
    cache_gb: float
    reserved_gb: float
    tokens: int


def engine_on_gpus(model: ModelSettings, gpu_gb: float) -> EngineMemory:
    """The cache has what weights and activations leave of vLLM's share. Raises `UnknownSize`."""
    engine = model.engine
    gpus = (engine.tensor_parallel_size or 1) * (engine.pipeline_parallel_size or 1)
    reserved_gb = gpu_gb * (engine.gpu_memory_utilization or GPU_UTILIZATION)
    weights_gb, activations_gb = weights_of(model), _activations_gb(model)
    cache_gb = gpus * (reserved_gb - activations_gb) - weights_gb
    return EngineMemory(weights_gb, gpus * activations_gb, cache_gb, reserved_gb, _tokens(model, cache_gb))


def engine_on_cpus(model: ModelSettings) -> EngineMemory:
    """The cache has what the environment of the engine says. Raises `UnknownSize`."""
    cache_gb = float(model.environment.get(CPU_CACHE_VARIABLE, CPU_CACHE_GIB)) * GIB_IN_GB
    weights_gb, activations_gb = weights_of(model), _activations_gb(model)
    total_gb = ENGINE_PROCESSES_GB + weights_gb + activations_gb + cache_gb
    return EngineMemory(weights_gb, activations_gb, cache_gb, total_gb, _tokens(model, cache_gb))


def compressor_gb(model: CompressionModelSettings) -> float:
    """Of one replica, on its GPU or in its machine's memory. Raises `UnknownSize`."""
    if not KINDS[model.kind].has_network:
        return COMPRESSOR_PROCESSES_GB
    workers = model.workers or 1
    each_gb = _compressor_weights_gb(model) + NETWORK_ACTIVATIONS_GB
    if model.device == "cpu":
        return COMPRESSOR_PROCESSES_GB + workers * each_gb
    return workers * (CUDA_CONTEXT_GB + each_gb)


def weights_of(model: ModelSettings) -> float:
    if model.size.weights_gb is not None:
        return model.size.weights_gb
    if (folder := _folder(model.checkpoint)) is not None and (found := _weights_gb(folder)):
        return found
    raise UnknownSize("its checkpoint is not on this machine: set size.weights_gb")


def _compressor_weights_gb(model: CompressionModelSettings) -> float:
    if model.weights_gb is not None:
        return model.weights_gb
    reference = model.checkpoint or ""
    folder = PACKAGED_CHECKPOINTS.get(reference.removeprefix(EMBEDDED)) or _folder(reference)
    if folder is not None and (found := _weights_gb(folder)):
        return found
    raise UnknownSize("its checkpoint is not on this machine: set weights_gb")


def _activations_gb(model: ModelSettings) -> float:
    stated = model.size.activations_gb
    return ENGINE_ACTIVATIONS_GB[model.accelerator.kind] if stated is None else stated


def _tokens(model: ModelSettings, cache_gb: float) -> int:
    return max(0, int(cache_gb * GB / (_cache_kb_per_token(model) * 1000)))


def _cache_kb_per_token(model: ModelSettings) -> float:
    if model.size.kv_kb_per_token is not None:
        return model.size.kv_kb_per_token
    folder = _folder(model.checkpoint)
    try:
        fields = json.loads((folder / "config.json").read_text(encoding="utf-8")) if folder else {}
        bytes_each = 4 if model.engine.dtype == "float32" else 2
        return _values_per_token(fields.get("text_config", fields)) * bytes_each / 1000
    except (OSError, ValueError, KeyError, TypeError):
        raise UnknownSize("the size of its KV cache is unknown: set size.kv_kb_per_token") from None


def _values_per_token(fields: Mapping[str, Any]) -> int:
    """Numbers that a token's keys and values are, from a checkpoint's `config.json`."""
    layers = int(fields["num_hidden_layers"])
    if "kv_lora_rank" in fields:
        return layers * (int(fields["kv_lora_rank"]) + int(fields["qk_rope_head_dim"]))
    heads = int(fields["num_attention_heads"])
    width = int(fields.get("head_dim") or int(fields["hidden_size"]) // heads)
    return layers * 2 * int(fields.get("num_key_value_heads") or heads) * width


def _folder(checkpoint: str) -> Path | None:
    if checkpoint.startswith(EMBEDDED):
        return EMBEDDED_CHAT / checkpoint.removeprefix(EMBEDDED)
    if checkpoint.startswith((".", "/", "~")):
        return Path(checkpoint).expanduser()
    return None


def _weights_gb(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.glob("*.safetensors")) / GB
