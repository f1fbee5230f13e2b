"""One chat model of the configuration: its checkpoint, price, capabilities, engine and replicas."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from models.catalog import ToolUse
from models.engine_kinds import ENGINE_KINDS, ENGINE_LIMITS, SPIN_VARIABLE, VLLM, WORKER_SHARE_VARIABLE
from serve.config.adapters import AdapterSettings, without_its_bases
from serve.config.engine_features import problems_of
from serve.config.strict_section import ReplicaCounts, Section
from serve.fairness.places import Shares

Price = Annotated[Decimal, Field(ge=0, le=1_000_000, max_digits=15, decimal_places=6)]


class PriceSettings(Section):
    input_usd_per_mtok: Price = Field(description="US dollars per million prompt tokens.")
    output_usd_per_mtok: Price = Field(description="US dollars per million completion tokens.")
    minimum_request_usd: Annotated[Decimal, Field(ge=0, le=1000, max_digits=15, decimal_places=9)] = Field(
        description="Minimum charge of a successful request, in US dollars."
    )
    cached_input_usd_per_mtok: Price | None = Field(
        None,
        description="US dollars per million prompt tokens that the engine's prefix cache had; default: as other input.",
    )

    @field_validator("cached_input_usd_per_mtok")
    @classmethod
    def _never_dearer(cls, value: Decimal | None, info: ValidationInfo) -> Decimal | None:
        # What is held for a prompt of which nothing is cached must cover it.
        most = info.data.get("input_usd_per_mtok")
        if value is not None and most is not None and value > most:
            raise ValueError(f"cached input ({value}) must not cost more than input_usd_per_mtok ({most})")
        return value


class CapabilitySettings(Section):
    tools: ToolUse = Field(
        False,
        description="`true`: function tools may be offered to the model. `false`: a request with tools is refused. "
        "`ignore`: its tools are left out, unless it demands a call.",
    )
    reasoning_effort: bool = Field(False, description="The template takes `reasoning_effort`.")
    media: list[Literal["image_url", "input_audio", "video_url"]] = Field(
        [], description="Content part types accepted besides text."
    )
    template_roles: list[str] = Field(
        ["system", "user", "assistant", "tool"], description="Roles that the chat template supports."
    )
    chat_template_kwargs: list[str] = Field([], description="Template arguments that callers may set.")


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
    """Of an engine of vLLM. Raises `ValueError` where it has a part of a GPU and would measure the whole: it takes for
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


class SizeSettings(Section):
    """How large a checkpoint is, for `pith config check --node` if it is not on this machine."""

    weights_gb: float | None = Field(None, gt=0, description="Total gigabytes of weights, as loaded.")
    kv_kb_per_token: float | None = Field(None, gt=0, description="Total kilobytes of KV cache per token.")
    activations_gb: float | None = Field(
        None, ge=0, description="Gigabytes of activations on each GPU; default: 4 on a GPU, 0.3 on CPUs."
    )


class ReplicaSettings(ReplicaCounts):
    max_ongoing_requests: int = Field(
        256, ge=1, description="Requests that each HTTP process has on one replica at once."
    )
    max_queued_requests: int = Field(
        1024, ge=-1, description="Requests that wait in each ingress; above: 503."
    )
    project_share: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Share of an engine's places (`engine.max_num_seqs`) that one project of weight 1 gets when no "
        "other project is active; the rest stays free for newcomers. 1: all of them.",
    )
    contended_share: float | None = Field(
        None, gt=0, le=1, description="The same while other projects are active; default: `project_share`."
    )
    routing: Literal["prefix_cache", "round_robin"] = Field(
        "prefix_cache",
        description="Which replica gets a request: one that has the prompt's beginning cached, or the next one.",
    )
    target_ongoing_requests: float = Field(
        64, gt=0, description="Load per replica that autoscaling aims for."
    )
    idle_s: float = Field(600, ge=0, description="Seconds without load before a replica above `min` stops.")
    placement_strategy: Literal["PACK", "STRICT_PACK", "SPREAD", "STRICT_SPREAD"] | None = Field(
        None, description="Ray placement of the engine's workers."
    )

    @model_validator(mode="after")
    def _shares_ordered(self) -> ReplicaSettings:
        if self.contended_share is not None and self.contended_share > self.project_share:
            raise ValueError(
                f"contended_share ({self.contended_share}) is above project_share ({self.project_share})"
            )
        return self


def shares_of(replicas: ReplicaSettings) -> Shares:
    """What one project may hold of an engine's places."""
    return Shares(replicas.project_share, replicas.contended_share or replicas.project_share)


class ModelSettings(Section):
    id: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,126}$", description="What callers send as `model`."
    )
    kind: str = Field(
        "chat",
        description="`chat`; an entry of `embedding` or `rerank` has other keys (`serve.config.retrieval_models`).",
    )
    name: str = Field(min_length=1, description="Display name.")
    blurb: str = Field(min_length=1, description="One or two sentences for the public catalog.")
    checkpoint: str = Field(
        description="Hub name, a folder, or `embedded:NAME` for a model that comes with pith."
    )
    revision: str | None = Field(None, description="Commit of the hub repository.")
    context_length: int = Field(ge=16, le=10_000_000, description="Tokens of prompt and completion together.")
    price: PriceSettings
    adapter: AdapterSettings | None = Field(
        None,
        description="Makes the entry a LoRA adapter, which the engines of another entry serve; `checkpoint`, `engine`, "
        "`replicas` and the like are that one's.",
    )
    capabilities: CapabilitySettings = CapabilitySettings()
    engine: EngineSettings = EngineSettings()
    accelerator: AcceleratorSettings = AcceleratorSettings()
    size: SizeSettings = SizeSettings()
    replicas: ReplicaSettings = ReplicaSettings()
    environment: dict[str, str] = Field({}, description="Environment variables of the engine's processes.")

    def engine_environment(self) -> dict[str, str]:
        """All that the engine's processes find in theirs, what pith sets included."""
        spin_s = self.engine.spin_s
        if spin_s is None and self.accelerator.kind == "cpu":
            spin_s = 0.0
        spin = {} if spin_s is None else {SPIN_VARIABLE: str(spin_s)}
        share = self.accelerator.share
        part = {WORKER_SHARE_VARIABLE: str(share)} if share < 1 else {}
        return {**ENGINE_LIMITS, **spin, **self.environment, **part}

    @model_validator(mode="before")
    @classmethod
    def _adapter_has_a_base(cls, fields: Any) -> Any:
        return without_its_bases(fields)

    @field_validator("kind")
    @classmethod
    def _known_kind(cls, kind: str) -> str:
        if kind != "chat":
            raise ValueError(f"must be chat, embedding or rerank, not {kind!r}")
        return kind

    @model_validator(mode="after")
    def _part_of_one_gpu(self) -> ModelSettings:
        if self.accelerator.share == 1:
            return self
        engine = self.engine
        several = (engine.tensor_parallel_size or 1) * (engine.pipeline_parallel_size or 1) > 1
        if self.accelerator.kind != "gpu" or several or (engine.data_parallel_size or 1) > 1:
            raise ValueError("accelerator.share below 1 is for an engine on one GPU")
        if engine.kind == VLLM:
            check_share(self.accelerator, engine.kv_cache_memory_bytes, engine.gpu_memory_utilization)
        return self

    @model_validator(mode="after")
    def _features_go_together(self) -> ModelSettings:
        if self.adapter is None and self.engine.kind == VLLM and (problems := list(problems_of(self))):
            raise ValueError("; ".join(problems))
        return self

    @model_validator(mode="after")
    def _calls_can_be_read(self) -> ModelSettings:
        engine = self.engine
        readable = engine.enable_auto_tool_choice and engine.tool_call_parser
        if self.capabilities.tools is True and engine.kind == VLLM and not readable:
            raise ValueError(
                "capabilities.tools: true needs engine.enable_auto_tool_choice: true and engine.tool_call_parser"
            )
        return self
