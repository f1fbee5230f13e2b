"""Settings of an engine and of what it runs on, and features of vLLM that do not go together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from models.engine_kinds import ENGINE_KINDS, VLLM
from serve.config.engine_args import refusals
from serve.config.values import Section

# Those that need a second checkpoint.
WITH_A_MODEL = frozenset(["draft_model", "eagle", "eagle3", "medusa", "mlp_speculator"])
# Those that guess from what was said, and the parameter without which they guess nothing.
NGRAMS = frozenset(["ngram", "ngram_gpu"])
CPU_CACHE_VARIABLE = "VLLM_CPU_KVCACHE_SPACE"
# What vLLM's attention on CPUs takes (`vllm.v1.attention.backends.cpu_attn`).
CPU_BLOCKS = 32
# Names of a CPU's instructions for products of bfloat16, on x86 and on ARM.
_BFLOAT16 = frozenset(["avx512_bf16", "amx_bf16", "bf16"])


class EngineSettings(Section):
    """The engine. Keys that vLLM has too are those that pith itself goes by; all of vLLM's others stand in `args`.

    A file may name the fake, since `pith serve` has no other way in and one that starts in seconds is good for tests of
    all that is around an engine; the start says so for each such model, and so does every reply.
    """

    kind: str = Field(
        VLLM, description="The engine: `vllm`, or `fake`, which computes nothing and is for tests alone."
    )
    options: dict[str, Any] = Field(
        {}, description="Arguments of an engine of another kind, under its own names."
    )
    args: dict[str, Any] = Field(
        {},
        description="All other arguments of vLLM's, under the names and with the types of its class `AsyncEngineArgs`, "
        "which `pith config check` asks; what is refused, and why: [engine-features.md](engine-features.md).",
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] | None = Field(
        None,
        description="Precision of the weights and of the cache. `auto` and the default: the checkpoint's own; on CPUs "
        "that have no instructions for bfloat16, `float32`, which is many times faster there.",
    )
    tensor_parallel_size: int | None = Field(None, ge=1)
    pipeline_parallel_size: int | None = Field(None, ge=1)
    # Of an engine on CPUs: where the model runs. vLLM takes `uni` for `mp` there, but not the class by its name.
    distributed_executor_backend: str | None = Field(None, pattern=r"^(uni|mp|vllm(\.\w+)+)$")
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
    gpu_memory_utilization: float | None = Field(None, gt=0, le=1)
    kv_cache_dtype: str | None = None
    kv_cache_memory_bytes: int | None = Field(None, ge=2**20)
    block_size: int | None = Field(None, ge=1)
    max_num_seqs: int | None = Field(None, ge=1)
    enable_auto_tool_choice: bool | None = None
    tool_call_parser: str | None = None
    reasoning_parser: str | None = None
    chat_template: str | None = None
    max_loras: int | None = Field(
        None,
        ge=1,
        description="Adapters of this model in one batch; default: all of them, at most 8. Where it is given, a reload "
        "adds and removes adapters in folders without starting the engines again.",
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
            raise ValueError("options is for engines of another kind; vLLM's arguments stand in args")
        if self.kind != VLLM and (given := self.vllm_arguments()):
            raise ValueError(f"{', '.join(given)}: for kind vllm only; give {self.kind} its own in options")
        if self.max_cpu_loras is not None and self.max_cpu_loras < (self.max_loras or 1):
            raise ValueError("max_cpu_loras must not be below max_loras")
        return self

    def dtype_on(self, kind: str, *, machine: Path = Path("/proc/cpuinfo")) -> str | None:
        """What a model on CPUs or GPUs like those of this machine computes in; None where vLLM chooses."""
        if kind == "cpu" and self.dtype in (None, "auto") and not _has_bfloat16(machine):
            return "float32"
        return None if self.dtype == "auto" else self.dtype

    def vllm_arguments(self) -> dict[str, Any]:
        """Those that are given."""
        own = self.model_dump(exclude_none=True, exclude={"kind", "options", "args", "spin_s", "grammar_s"})
        return {**self.args, **own}


@cache
def _has_bfloat16(machine: Path) -> bool:
    """True too where the CPUs do not say what they have."""
    try:
        words = machine.read_text(encoding="utf-8", errors="replace").split()
    except OSError:
        return True
    return not _BFLOAT16.isdisjoint(words)


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
    args = engine.args
    yield from refusals(args, frozenset(EngineSettings.model_fields))
    for name in ("kv_offloading_size", "kv_transfer_config"):
        if args.get(name) is not None and on_cpus:
            yield f"engine.args.{name}: vLLM moves a cache out of a GPU's memory alone; accelerator.kind is cpu"
    if args.get("enable_expert_parallel") and on_cpus:
        yield (
            "engine.args.enable_expert_parallel: vLLM's kernels for CPUs take every expert for their own, and compute "
            "with the wrong ones or crash; accelerator.kind is cpu"
        )
    if args.get("kv_offloading_backend") is not None and args.get("kv_offloading_size") is None:
        yield "engine.args.kv_offloading_backend: has no effect without engine.args.kv_offloading_size"
    if args.get("enable_prefix_caching") is False and args.get("kv_offloading_size") is not None:
        yield (
            "engine.args.kv_offloading_size: needs the prefix cache, which engine.args.enable_prefix_caching turns off"
        )
    if engine.distributed_executor_backend is not None and not on_cpus:
        yield "engine.distributed_executor_backend is for accelerator.kind cpu; on a GPU Ray sets it"
    if isinstance(args.get("speculative_config"), Mapping):
        yield from _of_speculation(args["speculative_config"])
    if on_cpus:
        yield from _of_cpus(engine, environment)


def _of_speculation(given: Mapping[str, Any]) -> Iterator[str]:
    where, method = "engine.args.speculative_config", given.get("method")
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


def _of_cpus(engine: EngineSettings, environment: Mapping[str, str]) -> Iterator[str]:
    space = environment.get(CPU_CACHE_VARIABLE)
    if space is not None and not (space.isascii() and space.isdigit() and int(space)):
        yield f"environment.{CPU_CACHE_VARIABLE}: must be a whole number of GiB, not {space!r}"
    if (engine.block_size or 0) % CPU_BLOCKS:
        yield f"engine.block_size: must be a multiple of {CPU_BLOCKS} on CPUs"
