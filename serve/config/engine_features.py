"""Features of vLLM that do not go together, or not with what runs it here: said before a start that would fail."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from serve.config.chat_models import ModelSettings

# vLLM 0.29's methods for weights (`vllm.model_executor.layers.quantization`), and for speculation
# (`vllm.config.speculative`), without those of a model's own name. A test holds both to the pinned version.
QUANTIZATIONS = frozenset(
    [
        "awq",
        "auto_awq",
        "fp8",
        "fbgemm_fp8",
        "fp_quant",
        "modelopt",
        "modelopt_fp4",
        "modelopt_mxfp8",
        "modelopt_mixed",
        "auto_gptq",
        "gptq",
        "gptq_marlin",
        "awq_marlin",
        "humming",
        "compressed-tensors",
        "experts_int8",
        "quark",
        "moe_wna16",
        "torchao",
        "inc",
        "mxfp4",
        "gpt_oss_mxfp4",
        "deepseek_v4_fp8",
        "online",
        "fp8_per_tensor",
        "fp8_per_block",
        "fp8_per_channel",
        "int8_per_channel_weight_only",
        "nvfp4_per_token",
        "mxfp8",
    ]
)
# Those that need a second checkpoint.
WITH_A_MODEL = frozenset(["draft_model", "eagle", "eagle3", "medusa", "mlp_speculator"])
# Those that guess from what was said, and the parameter without which they guess nothing.
NGRAMS = frozenset(["ngram", "ngram_gpu"])
CPU_CACHE_VARIABLE = "VLLM_CPU_KVCACHE_SPACE"
# What vLLM's attention on CPUs takes (`vllm.v1.attention.backends.cpu_attn`).
CPU_BLOCKS = 32


def problems_of(model: ModelSettings) -> Iterator[str]:
    """What is wrong with the features of a model on vLLM, one sentence each."""
    engine, on_cpus = model.engine, model.accelerator.kind == "cpu"
    if engine.quantization is not None and engine.quantization not in QUANTIZATIONS:
        yield f"engine.quantization: vLLM has no {engine.quantization!r}; it has {', '.join(sorted(QUANTIZATIONS))}"
    if (engine.data_parallel_size or 1) > 1:
        yield (
            "engine.data_parallel_size: copies of a model are replicas here; set replicas.min and replicas.max"
        )
    if model.replicas.per_node is not None:
        yield "replicas.per_node: Ray Serve has no such bound for engines on vLLM"
    if engine.kv_offloading_size is not None and on_cpus:
        yield "engine.kv_offloading_size: vLLM moves a cache out of a GPU's memory alone; accelerator.kind is cpu"
    if engine.kv_offloading_backend is not None and engine.kv_offloading_size is None:
        yield "engine.kv_offloading_backend: has no effect without engine.kv_offloading_size"
    if engine.enable_prefix_caching is False and engine.kv_offloading_size is not None:
        yield "engine.kv_offloading_size: needs the prefix cache, which engine.enable_prefix_caching turns off"
    if engine.distributed_executor_backend is not None and not on_cpus:
        yield "engine.distributed_executor_backend is for accelerator.kind cpu; on a GPU Ray sets it"
    if model.replicas.per_node is not None:
        yield "replicas.per_node: Ray Serve has no such bound for engines on vLLM"
    if engine.speculative_config is not None:
        yield from _of_speculation(engine.speculative_config)
    if on_cpus:
        yield from _of_cpus(model)


def _of_speculation(given: Mapping[str, Any]) -> Iterator[str]:
    where, method = "engine.speculative_config", given.get("method")
    if method is None and given.get("model") is None:
        yield f"{where}: names no method, such as ngram, and no model"
    tokens = given.get("num_speculative_tokens")
    needs_tokens = method in NGRAMS or method in WITH_A_MODEL
    if (tokens is None and needs_tokens) or (
        tokens is not None and (not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 1)
    ):
        yield f"{where}.num_speculative_tokens: must be a positive integer"
    if method in WITH_A_MODEL and not given.get("model"):
        yield f"{where}.model: the method {method} needs a checkpoint of its own"
    if given.get("trust_remote_code"):
        yield f"{where}.trust_remote_code: code of a checkpoint is never run"


def _of_cpus(model: ModelSettings) -> Iterator[str]:
    space = model.environment.get(CPU_CACHE_VARIABLE)
    if space is not None and not (space.isascii() and space.isdigit() and int(space)):
        yield f"environment.{CPU_CACHE_VARIABLE}: must be a whole number of GiB, not {space!r}"
    if (model.engine.block_size or 0) % CPU_BLOCKS:
        yield f"engine.block_size: must be a multiple of {CPU_BLOCKS} on CPUs"
