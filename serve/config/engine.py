"""Settings of an engine and of what it runs on, and features of vLLM that do not go together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from models.engine_kinds import ENGINE_KINDS, VLLM
from serve.config.values import Section

# vLLM 0.29's methods for weights (`vllm.model_executor.layers.quantization`), and for speculation
# (`vllm.config.speculative`), without those of a model's own name. A test holds both to the pinned version.
QUANTIZATIONS = frozenset(
    """
    awq auto_awq fp8 fbgemm_fp8 fp_quant modelopt modelopt_fp4 modelopt_mxfp8 modelopt_mixed auto_gptq
    gptq gptq_marlin awq_marlin humming compressed-tensors experts_int8 quark moe_wna16 torchao inc
    mxfp4 gpt_oss_mxfp4 deepseek_v4_fp8 online fp8_per_tensor fp8_per_block fp8_per_channel
    int8_per_channel_weight_only nvfp4_per_token mxfp8
    """.split()  # noqa: SIM905
)
# Those that need a second checkpoint.
WITH_A_MODEL = frozenset(["draft_model", "eagle", "eagle3", "medusa", "mlp_speculator"])
# Those that guess from what was said, and the parameter without which they guess nothing.
NGRAMS = frozenset(["ngram", "ngram_gpu"])
CPU_CACHE_VARIABLE = "VLLM_CPU_KVCACHE_SPACE"
# What vLLM's attention on CPUs takes (`vllm.v1.attention.backends.cpu_attn`).
CPU_BLOCKS = 32


class EngineSettings(Section):
    """The engine, and vLLM's arguments under vLLM's names (https://docs.vllm.ai, `EngineArgs`). Remote code has no key.

    A file may name the fake, since `pith serve` has no other way in and one that starts in seconds is good for tests of
    all that is around an engine; the start says so for each such model, and so does every reply.
    """

    kind: str = Field(
        VLLM, description="The engine: `vllm`, or `fake`, which computes nothing and is for tests alone."
    )
    options: dict[str, Any] = Field(
        {}, description="Arguments of an engine of another kind, under its own names."
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] | None = None
    quantization: str | None = None
    tensor_parallel_size: int | None = Field(None, ge=1)
    pipeline_parallel_size: int | None = Field(None, ge=1)
    data_parallel_size: int | None = Field(None, ge=1)
    # Of an engine on CPUs: where the model runs. vLLM takes `uni` for `mp` there, but not the class by its name.
    distributed_executor_backend: str | None = None
    spin_s: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Seconds that an engine's processes spin when they wait for each other, before they sleep; "
        "default: 0 on CPUs, where spinning takes cores from the model, and vLLM's own second on GPUs.",
    )
    grammar_s: float = Field(
        0.5,
        ge=0.1,
        le=30,
        description="CPU seconds that compiling one request's grammar may take; what takes longer is refused. Every "
        "caller may make an engine spend them, and others wait that long for their own.",
    )
    enable_expert_parallel: bool | None = None
    gpu_memory_utilization: float | None = Field(None, gt=0, le=1)
    kv_cache_dtype: str | None = None
    kv_cache_memory_bytes: int | None = Field(None, ge=2**20)
    kv_offloading_size: float | None = Field(
        None,
        gt=0,
        description="GiB of the machine's memory to which the cache is moved from the GPUs, of all together.",
    )
    kv_offloading_backend: Literal["native", "lmcache"] | None = None
    block_size: int | None = Field(None, ge=1)
    max_num_seqs: int | None = Field(None, ge=1)
    max_num_batched_tokens: int | None = Field(None, ge=1)
    enable_prefix_caching: bool | None = None
    enable_chunked_prefill: bool | None = None
    enforce_eager: bool | None = None
    seed: int | None = None
    limit_mm_per_prompt: dict[str, int] | None = None
    enable_auto_tool_choice: bool | None = None
    tool_call_parser: str | None = None
    reasoning_parser: str | None = None
    chat_template: str | None = None
    generation_config: str | None = None
    override_generation_config: dict[str, Any] | None = None
    max_logprobs: int | None = Field(None, ge=0)
    tokenizer_mode: str | None = None
    hf_overrides: dict[str, Any] | None = None
    speculative_config: dict[str, Any] | None = None
    compilation_config: dict[str, Any] | None = None
    structured_outputs_config: dict[str, Any] | None = None
    max_loras: int | None = Field(
        None, ge=1, description="Adapters of this model in one batch; default: all of them, at most 8."
    )
    max_cpu_loras: int | None = Field(
        None,
        ge=1,
        description="Adapters that stay in the machine's memory; others are read again when asked for. Default: all.",
    )
    max_lora_rank: Literal[1, 8, 16, 32, 64, 128, 256, 320, 512] | None = Field(
        None, description="Largest rank of an adapter; default: 16. Memory is set aside for it."
    )

    @model_validator(mode="after")
    def _known(self) -> EngineSettings:
        if self.kind not in ENGINE_KINDS:
            raise ValueError(f"kind must be one of {', '.join(ENGINE_KINDS)}, not {self.kind!r}")
        if self.kind == VLLM and self.options:
            raise ValueError("options is for engines of another kind; vLLM's arguments are keys of engine")
        if self.kind != VLLM and (given := self.vllm_arguments()):
            raise ValueError(f"{', '.join(given)}: for kind vllm only; give {self.kind} its own in options")
        if self.max_cpu_loras is not None and self.max_cpu_loras < (self.max_loras or 1):
            raise ValueError("max_cpu_loras must not be below max_loras")
        return self

    def vllm_arguments(self) -> dict[str, Any]:
        """Those that are given."""
        return self.model_dump(exclude_none=True, exclude={"kind", "options", "spin_s", "grammar_s"})


class AcceleratorSettings(Section):
    kind: Literal["cpu", "gpu"] = Field("cpu", description="What the engine runs on.")
    type: str | None = Field(None, description="Ray's accelerator type, for placement (for example H100).")
    share: float = Field(
        1, gt=0, le=1, description="Part of each GPU that the engine takes; the rest is for compressors."
    )


def check_share(
    accelerator: AcceleratorSettings, kv_cache_bytes: int | None, utilization: float | None
) -> None:
    """Raises `ValueError` for an engine of vLLM where it has a part of a GPU and would measure the whole: it takes for
    its own what others allocate meanwhile (`determine_available_memory` in vllm/v1/worker/gpu_worker.py), and asks at
    its start for as much free memory as its utilization says (`request_memory` in vllm/v1/worker/utils.py)."""
    if accelerator.kind != "gpu" or accelerator.share == 1:
        return
    if kv_cache_bytes is None:
        raise ValueError(
            "engine.kv_cache_memory_bytes: must be set where accelerator.share is below 1, since vLLM would measure "
            "the memory of the whole GPU, with what others take of it"
        )
    if utilization is None or utilization > accelerator.share:
        raise ValueError(
            f"engine.gpu_memory_utilization: must be set to at most accelerator.share ({accelerator.share:g}): vLLM "
            "starts only where so much of the GPU is free"
        )


def problems_of(engine: EngineSettings, environment: Mapping[str, str], *, on_cpus: bool) -> Iterator[str]:
    """Features of vLLM that do not go together, or not with what runs it here: a sentence for each."""
    if engine.quantization is not None and engine.quantization not in QUANTIZATIONS:
        yield f"engine.quantization: vLLM has no {engine.quantization!r}; it has {', '.join(sorted(QUANTIZATIONS))}"
    if (engine.data_parallel_size or 1) > 1:
        yield (
            "engine.data_parallel_size: copies of a model are replicas here; set replicas.min and replicas.max"
        )
    if engine.kv_offloading_size is not None and on_cpus:
        yield "engine.kv_offloading_size: vLLM moves a cache out of a GPU's memory alone; accelerator.kind is cpu"
    if engine.kv_offloading_backend is not None and engine.kv_offloading_size is None:
        yield "engine.kv_offloading_backend: has no effect without engine.kv_offloading_size"
    if engine.enable_prefix_caching is False and engine.kv_offloading_size is not None:
        yield "engine.kv_offloading_size: needs the prefix cache, which engine.enable_prefix_caching turns off"
    if engine.distributed_executor_backend is not None and not on_cpus:
        yield "engine.distributed_executor_backend is for accelerator.kind cpu; on a GPU Ray sets it"
    if engine.speculative_config is not None:
        yield from _of_speculation(engine.speculative_config)
    if on_cpus:
        yield from _of_cpus(engine, environment)


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


def _of_cpus(engine: EngineSettings, environment: Mapping[str, str]) -> Iterator[str]:
    space = environment.get(CPU_CACHE_VARIABLE)
    if space is not None and not (space.isascii() and space.isdigit() and int(space)):
        yield f"environment.{CPU_CACHE_VARIABLE}: must be a whole number of GiB, not {space!r}"
    if (engine.block_size or 0) % CPU_BLOCKS:
        yield f"engine.block_size: must be a multiple of {CPU_BLOCKS} on CPUs"
