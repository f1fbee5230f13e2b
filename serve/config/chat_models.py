"""One chat model of the configuration: its checkpoint, price, capabilities, engine and replicas."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from models.engine_kinds import ENGINE_KINDS, VLLM
from serve.config.strict_section import Section
from serve.fairness.places import Shares

Price = Annotated[Decimal, Field(ge=0, le=1_000_000, max_digits=15, decimal_places=6)]


class PriceSettings(Section):
    input_usd_per_mtok: Price = Field(description="US dollars per million prompt tokens.")
    output_usd_per_mtok: Price = Field(description="US dollars per million completion tokens.")
    minimum_request_usd: Annotated[Decimal, Field(ge=0, le=1000, max_digits=15, decimal_places=9)] = Field(
        description="Minimum charge of a successful request, in US dollars."
    )


class CapabilitySettings(Section):
    tools: bool = Field(False, description="Function tools may be offered to the model.")
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
    enable_expert_parallel: bool | None = None
    gpu_memory_utilization: float | None = Field(None, gt=0, le=1)
    kv_cache_dtype: str | None = None
    kv_cache_memory_bytes: int | None = Field(None, ge=2**20)
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

    @model_validator(mode="after")
    def _known(self) -> EngineSettings:
        if self.kind not in ENGINE_KINDS:
            raise ValueError(f"kind must be one of {', '.join(ENGINE_KINDS)}, not {self.kind!r}")
        if self.kind == VLLM and self.options:
            raise ValueError("options is for engines of another kind; vLLM's arguments are keys of engine")
        if self.kind != VLLM and (given := self.vllm_arguments()):
            raise ValueError(f"{', '.join(given)}: for kind vllm only; give {self.kind} its own in options")
        return self

    def vllm_arguments(self) -> dict[str, Any]:
        """Those that are given."""
        return self.model_dump(exclude_none=True, exclude={"kind", "options"})


class AcceleratorSettings(Section):
    kind: Literal["cpu", "gpu"] = Field("cpu", description="What the engine runs on.")
    type: str | None = Field(None, description="Ray's accelerator type, for placement (for example H100).")
    share: float = Field(
        1, gt=0, le=1, description="Part of each GPU that the engine takes; the rest is for compressors."
    )


class SizeSettings(Section):
    """How large a checkpoint is, for `pith config check --node` if it is not on this machine."""

    weights_gb: float | None = Field(None, gt=0, description="Total gigabytes of weights, as loaded.")
    kv_kb_per_token: float | None = Field(None, gt=0, description="Total kilobytes of KV cache per token.")
    activations_gb: float | None = Field(
        None, ge=0, description="Gigabytes of activations on each GPU; default: 4 on a GPU, 0.3 on CPUs."
    )


class ReplicaSettings(Section):
    min: int = Field(1, ge=0, description="Replicas kept up; 0 starts the model on its first request.")
    max: int = Field(1, ge=1, description="Maximum number of replicas.")
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
    def _ordered(self) -> ReplicaSettings:
        if self.min > self.max:
            raise ValueError(f"min ({self.min}) is above max ({self.max})")
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
    name: str = Field(min_length=1, description="Display name.")
    blurb: str = Field(min_length=1, description="One or two sentences for the public catalog.")
    checkpoint: str = Field(
        description="Hub name, a folder, or `embedded:NAME` for a model that comes with pith."
    )
    revision: str | None = Field(None, description="Commit of the hub repository.")
    context_length: int = Field(ge=16, le=10_000_000, description="Tokens of prompt and completion together.")
    price: PriceSettings
    capabilities: CapabilitySettings = CapabilitySettings()
    engine: EngineSettings = EngineSettings()
    accelerator: AcceleratorSettings = AcceleratorSettings()
    size: SizeSettings = SizeSettings()
    replicas: ReplicaSettings = ReplicaSettings()
    environment: dict[str, str] = Field({}, description="Environment variables of the engine's processes.")

    @model_validator(mode="after")
    def _part_of_one_gpu(self) -> ModelSettings:
        if self.accelerator.share == 1:
            return self
        engine = self.engine
        several = (engine.tensor_parallel_size or 1) * (engine.pipeline_parallel_size or 1) > 1
        if self.accelerator.kind != "gpu" or several or (engine.data_parallel_size or 1) > 1:
            raise ValueError("accelerator.share below 1 is for an engine on one GPU")
        if (engine.gpu_memory_utilization or 1) > self.accelerator.share:
            raise ValueError("engine.gpu_memory_utilization must not be above accelerator.share")
        return self

    @model_validator(mode="after")
    def _executor_is_rays_on_a_gpu(self) -> ModelSettings:
        if self.engine.distributed_executor_backend is not None and self.accelerator.kind != "cpu":
            raise ValueError(
                "engine.distributed_executor_backend is for accelerator.kind cpu; on a GPU Ray sets it"
            )
        return self
