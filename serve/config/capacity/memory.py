"""Memory of engines and compressors by estimate: weights, activations, adapters, and the KV cache by vLLM's layout."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compression.scorers.kinds import KINDS
from serve.config.chat_models import ModelSettings, lora_arguments
from serve.config.compression_models import PACKAGED_CHECKPOINTS, CompressionModelSettings
from serve.config.engine import EngineSettings
from serve.config.paths import EMBEDDED, folder_of
from serve.config.retrieval_models import RetrievalModelSettings

# Tokens of a block, where the configuration does not say (vLLM 0.29).
BLOCK_TOKENS = {"cpu": 128, "gpu": 16}
# Tokens of a prompt that are computed at once; a layer with a window holds them beside its window.
BATCHED_TOKENS = 8192
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "half": 2}
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


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """A replica's cache on `gpus` in all. `bytes_per_token` is what a token of every layer takes on all of them; of it
    `windowed_bytes` belong to layers that keep no more than `window` tokens of a request."""

    bytes_per_token: int
    block_tokens: int
    windowed_bytes: int = 0
    window: int = 0

    def tokens(self, cache_bytes: float) -> int:
        """Tokens in whole blocks, of all layers."""
        return int(cache_bytes // (self.bytes_per_token * self.block_tokens)) * self.block_tokens

    def request_bytes(self, tokens: int) -> int:
        """Bytes of one request with so many tokens of prompt and reply: its layers with a window stop growing."""
        kept = min(tokens, self.window + BATCHED_TOKENS) if self.windowed_bytes else tokens
        full = self.bytes_per_token - self.windowed_bytes
        return full * self._whole(tokens) + self.windowed_bytes * self._whole(kept)

    def _whole(self, tokens: int) -> int:
        return -(-tokens // self.block_tokens) * self.block_tokens


def cache_layout(fields: Mapping[str, Any], engine: EngineSettings, *, kind: str) -> CacheLayout:
    """From a checkpoint's `config.json`; `kind` is what the engine runs on. Raises `KeyError`, `TypeError` or
    `ValueError` for one that cannot be read so."""
    fields = fields.get("text_config", fields)
    width = _bytes_each(fields, engine, kind)
    layers = int(fields["num_hidden_layers"])
    per_layer = _values_per_layer(fields, engine.tensor_parallel_size or 1) * width
    windowed, window = _windowed_layers(fields)
    return CacheLayout(
        bytes_per_token=layers * per_layer,
        block_tokens=engine.block_size or BLOCK_TOKENS[kind],
        windowed_bytes=windowed * per_layer,
        window=window,
    )


def _bytes_each(fields: Mapping[str, Any], engine: EngineSettings, kind: str) -> int:
    """Of one number of the cache."""
    stated = engine.kv_cache_dtype
    if stated is not None and stated != "auto":
        return 1 if stated.startswith(("fp8", "int8")) else _BYTES[stated]
    dtype = engine.dtype_on(kind)
    own = str(dtype or fields.get("dtype") or fields.get("torch_dtype") or "bfloat16")
    # vLLM takes 16 bits for a checkpoint of 32 where it is not told otherwise.
    return _BYTES["float16" if dtype is None and own == "float32" else own]


def _values_per_layer(fields: Mapping[str, Any], shards: int) -> int:
    """Numbers of one token, on all shards together: keys and values of each head, or of MLA what both are made of,
    which every shard has whole. A head is on several shards where there are fewer heads than shards."""
    if fields.get("kv_lora_rank"):
        return shards * (int(fields["kv_lora_rank"]) + int(fields["qk_rope_head_dim"]))
    queries = int(fields["num_attention_heads"])
    width = int(fields.get("head_dim") or int(fields["hidden_size"]) // queries)
    heads = int(fields.get("num_key_value_heads") or queries)
    return 2 * width * max(heads, shards)


def _windowed_layers(fields: Mapping[str, Any]) -> tuple[int, int]:
    """How many layers see a window of tokens alone, and how many tokens that is."""
    window = fields.get("sliding_window")
    if not window or fields.get("use_sliding_window") is False:
        return 0, 0
    kinds = fields.get("layer_types")
    if kinds is None:
        return int(fields["num_hidden_layers"]), int(window)
    return sum(kind == "sliding_attention" for kind in kinds), int(window)


class UnknownSize(Exception):
    """The checkpoint is not on this machine, and the configuration does not say how large it is."""


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """Memory of one replica. `tokens` is what its KV cache holds; each of its GPUs is taken up to `reserved_gb`."""

    weights_gb: float
    activations_gb: float
    cache_gb: float
    reserved_gb: float
    tokens: int
    # Requests of full context that it holds at once.
    requests: float
    adapters_gb: float = 0.0


def engine_on_gpus(model: ModelSettings, gpu_gb: float, *, adapters: int = 0) -> EngineMemory:
    """The cache has what weights, activations and places for adapters leave of vLLM's share. Raises `UnknownSize`."""
    engine = model.engine
    gpus = (engine.tensor_parallel_size or 1) * (engine.pipeline_parallel_size or 1)
    reserved_gb = gpu_gb * (engine.gpu_memory_utilization or GPU_UTILIZATION)
    weights_gb, activations_gb = weights_of(model), _activations_gb(model)
    adapters_gb = _adapters_gb(model, adapters)
    cache_gb = gpus * (reserved_gb - activations_gb) - weights_gb - adapters_gb
    if engine.kv_cache_memory_bytes is not None:
        # It is said for each GPU, and taken whether or not it is within the share.
        stated_gb = engine.kv_cache_memory_bytes / GB
        reserved_gb = stated_gb + activations_gb + (weights_gb + adapters_gb) / gpus
        cache_gb = gpus * stated_gb
    held = _held(model, cache_gb)
    return EngineMemory(weights_gb, gpus * activations_gb, cache_gb, reserved_gb, *held, adapters_gb)


def engines_in_turns(models: Sequence[ModelSettings], gpu_gb: float) -> tuple[float, float]:
    """Gigabytes of each GPU, at most, for one that is awake beside what the others keep; and of the machine's memory
    for the weights of all, since one falls asleep before the next one wakes. Raises `UnknownSize`."""
    kept_gb = sum(model.size.asleep_gb for model in models)
    more_gb = max(engine_on_gpus(model, gpu_gb).reserved_gb - model.size.asleep_gb for model in models)
    return kept_gb + more_gb, sum(map(weights_of, models))


def engine_on_cpus(model: ModelSettings, *, adapters: int = 0) -> EngineMemory:
    """The cache has what the environment of the engine says, or the engine itself. Raises `UnknownSize`."""
    cache_gb = _cpu_cache_gb(model.environment, model.engine.kv_cache_memory_bytes)
    weights_gb, activations_gb = weights_of(model), _activations_gb(model)
    adapters_gb = _adapters_gb(model, adapters)
    total_gb = ENGINE_PROCESSES_GB + weights_gb + activations_gb + cache_gb + adapters_gb
    held = _held(model, cache_gb)
    return EngineMemory(weights_gb, activations_gb, cache_gb, total_gb, *held, adapters_gb)


def _cpu_cache_gb(environment: Mapping[str, str], stated_bytes: int | None) -> float:
    """vLLM obeys the variable where both are there."""
    if stated_bytes is not None and CPU_CACHE_VARIABLE not in environment:
        return stated_bytes / GB
    return float(environment.get(CPU_CACHE_VARIABLE, CPU_CACHE_GIB)) * GIB_IN_GB


def compressor_gb(model: CompressionModelSettings) -> float:
    """Gigabytes of one replica, on its GPU or in its machine's memory. Raises `UnknownSize`."""
    if not KINDS[model.kind].has_network:
        return COMPRESSOR_PROCESSES_GB
    workers = model.workers or 1
    each_gb = _compressor_weights_gb(model) + NETWORK_ACTIVATIONS_GB
    if model.device == "cpu":
        return COMPRESSOR_PROCESSES_GB + workers * each_gb
    return workers * (CUDA_CONTEXT_GB + each_gb)


def retrieval_gb(model: RetrievalModelSettings, gpu_gb: float) -> float:
    """Gigabytes of a replica with processes of its own, on its GPU or in the machine's memory. Raises `UnknownSize`."""
    engine = model.engine
    cache_bytes = engine.kv_cache_memory_bytes
    if model.accelerator.kind == "gpu" and engine.kind == "vllm" and cache_bytes is None:
        return gpu_gb * (engine.gpu_memory_utilization or GPU_UTILIZATION)
    weights_gb = model.weights_gb
    if weights_gb is None:
        folder = folder_of(model.checkpoint or "")
        weights_gb = _weights_gb(folder) if folder is not None else 0.0
    if not weights_gb:
        raise UnknownSize("its checkpoint is not on this machine: set weights_gb")
    if model.accelerator.kind == "gpu":
        return CUDA_CONTEXT_GB + weights_gb + NETWORK_ACTIVATIONS_GB + (cache_bytes or 0) / GB
    if engine.kind == "vllm":
        cache_gb = _cpu_cache_gb(model.environment, cache_bytes)
        return ENGINE_PROCESSES_GB + weights_gb + NETWORK_ACTIVATIONS_GB + cache_gb
    return COMPRESSOR_PROCESSES_GB + weights_gb + NETWORK_ACTIVATIONS_GB


def weights_of(model: ModelSettings) -> float:
    if model.size.weights_gb is not None:
        return model.size.weights_gb
    if (folder := folder_of(model.checkpoint)) is not None and (found := _weights_gb(folder)):
        return found
    raise UnknownSize("its checkpoint is not on this machine: set size.weights_gb")


def _compressor_weights_gb(model: CompressionModelSettings) -> float:
    if model.weights_gb is not None:
        return model.weights_gb
    reference = model.checkpoint or ""
    folder = PACKAGED_CHECKPOINTS.get(reference.removeprefix(EMBEDDED)) or folder_of(reference)
    if folder is not None and (found := _weights_gb(folder)):
        return found
    raise UnknownSize("its checkpoint is not on this machine: set weights_gb")


def _activations_gb(model: ModelSettings) -> float:
    stated = model.size.activations_gb
    return ENGINE_ACTIVATIONS_GB[model.accelerator.kind] if stated is None else stated


def _held(model: ModelSettings, cache_gb: float) -> tuple[int, float]:
    """Tokens that a cache holds, and requests of full context."""
    cache_bytes, context = max(0.0, cache_gb) * GB, model.context_length
    if model.size.kv_kb_per_token is not None:
        tokens = int(cache_bytes / (model.size.kv_kb_per_token * 1000))
        return tokens, tokens / context
    try:
        layout = cache_layout(_config_of(model), model.engine, kind=model.accelerator.kind)
    except (OSError, ValueError, KeyError, TypeError):
        raise UnknownSize("the size of its KV cache is unknown: set size.kv_kb_per_token") from None
    return layout.tokens(cache_bytes), cache_bytes / layout.request_bytes(context)


def _config_of(model: ModelSettings) -> Mapping[str, Any]:
    """Raises `OSError` or `ValueError` where there is none to be read."""
    folder = folder_of(model.checkpoint)
    if folder is None:
        raise ValueError(f"{model.checkpoint} is not on this machine")
    fields: Mapping[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return fields


def _adapters_gb(model: ModelSettings, adapters: int) -> float:
    """Places of adapters, which vLLM sets aside at the largest rank: of attention and of a dense MLP. 0 where the shape
    of the base is unknown."""
    arguments = lora_arguments(model, adapters)
    if not arguments:
        return 0.0
    try:
        fields = _config_of(model)
        fields = fields.get("text_config", fields)
        widths = _module_widths(fields)
        layers = int(fields["num_hidden_layers"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0
    bytes_each = 4 if model.engine.dtype_on(model.accelerator.kind) == "float32" else 2
    return float(layers * widths * arguments["max_lora_rank"] * arguments["max_loras"] * bytes_each / GB)


def _module_widths(fields: Mapping[str, Any]) -> int:
    """Inputs and outputs of a layer's modules, added up: what a rank of one adapter takes."""
    hidden, inner = int(fields["hidden_size"]), int(fields["intermediate_size"])
    queries = int(fields["num_attention_heads"])
    width = int(fields.get("head_dim") or hidden // queries)
    heads = int(fields.get("num_key_value_heads") or queries)
    attention = (hidden + queries * width) * 2 + (hidden + heads * width) * 2
    return attention + 3 * (hidden + inner)


def _weights_gb(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.glob("*.safetensors")) / GB
