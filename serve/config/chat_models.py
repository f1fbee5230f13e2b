"""Chat models of a configuration, and the adapters on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from models.adapters import AdapterSource, BrokenAdapter, read_adapter
from models.catalog import ToolUse
from models.engine_kinds import ENGINE_LIMITS, SPIN_VARIABLE, VLLM, WORKER_SHARE_VARIABLE
from serve.config.engine import AcceleratorSettings, EngineSettings, check_share, problems_of
from serve.config.paths import ConfigError, folder_of
from serve.config.values import ReplicaCounts, Section, with_files

Price = Annotated[Decimal, Field(ge=0, le=1_000_000, max_digits=15, decimal_places=6)]
# Keys of a model that an adapter has of its base: they are the same process. A shorter context of its own would be no
# limit to that, and what is held for a prompt must cover what the engine takes.
OF_ITS_BASE = (
    "checkpoint",
    "revision",
    "context_length",
    "engine",
    "accelerator",
    "size",
    "replicas",
    "environment",
)


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
        "`ignore`: its tools are left out; a call that it demands is refused. `demanded`: they are left out, but a "
        "call that it demands is made, held to its schema.",
    )
    reasoning_effort: bool = Field(False, description="The template takes `reasoning_effort`.")
    media: list[Literal["image_url", "input_audio", "video_url"]] = Field(
        [], description="Content part types accepted besides text."
    )
    template_roles: list[str] = Field(
        ["system", "user", "assistant", "tool"], description="Roles that the chat template supports."
    )
    chat_template_kwargs: list[str] = Field([], description="Template arguments that callers may set.")


class SizeSettings(Section):
    """Size of a checkpoint, for `pith config check --node` if it is not on this machine."""

    weights_gb: float | None = Field(None, gt=0, description="Total gigabytes of weights, as loaded.")
    kv_kb_per_token: float | None = Field(None, gt=0, description="Total kilobytes of KV cache per token.")
    activations_gb: float | None = Field(
        None, ge=0, description="Gigabytes of activations on each GPU; default: 4 on a GPU, 0.3 on CPUs."
    )
    asleep_gb: float = Field(
        2,
        ge=0,
        description="Gigabytes that it keeps of each GPU while it sleeps (`turns`): CUDA's context and graphs.",
    )


class ReplicaSettings(ReplicaCounts):
    max_ongoing_requests: int = Field(
        256, ge=1, description="Requests that each HTTP process has on one replica at once."
    )
    max_queued_requests: int = Field(
        1024, ge=-1, description="Requests that wait in each ingress; above: 503."
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


class AdapterSettings(Section):
    """A LoRA adapter in PEFT's format (`adapter_config.json`, `adapter_model.safetensors`)."""

    of: str = Field(description="Id of the model whose engines serve it; that model is an entry of `models`.")
    source: str = Field(
        min_length=1,
        description="Folder of the adapter, which begins with `.`, `/` or `~`, or a name on the hub.",
    )
    revision: str | None = Field(None, description="Commit of the hub repository.")


def without_its_bases(fields: Any) -> Any:
    """An entry of `models` before it is checked: an adapter must not have what its base has. Raises `ValueError`."""
    if not isinstance(fields, dict) or not isinstance(fields.get("adapter"), dict):
        return fields
    if given := [name for name in OF_ITS_BASE if name in fields]:
        raise ValueError(
            f"{', '.join(given)}: an adapter has those of its base, {fields['adapter'].get('of')!r}"
        )
    # Of the required ones, until the base is known.
    return {"checkpoint": "", "context_length": 16, **fields}


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
        description="Hub name, a folder, or `embedded:NAME`: what comes with pith, and `smollm2-135m`, fetched once."
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
        if self.accelerator.kind != "gpu" or several:
            raise ValueError("accelerator.share below 1 is for an engine on one GPU")
        if engine.kind == VLLM:
            check_share(self.accelerator, engine.kv_cache_memory_bytes, engine.gpu_memory_utilization)
        return self

    @model_validator(mode="after")
    def _features_go_together(self) -> ModelSettings:
        if self.adapter is not None or self.engine.kind != VLLM:
            return self
        on_cpus = self.accelerator.kind == "cpu"
        problems = list(problems_of(self.engine, self.environment, on_cpus=on_cpus))
        if self.replicas.per_node is not None:
            problems.append("replicas.per_node: Ray Serve has no such bound for engines on vLLM")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @model_validator(mode="after")
    def _calls_can_be_read(self) -> ModelSettings:
        engine = self.engine
        readable = engine.enable_auto_tool_choice and engine.tool_call_parser
        if self.capabilities.tools in (True, "demanded") and engine.kind == VLLM and not readable:
            wanted = str(self.capabilities.tools).lower()
            raise ValueError(
                f"capabilities.tools: {wanted} needs engine.enable_auto_tool_choice: true and engine.tool_call_parser"
            )
        return self


# vLLM's own, where the configuration does not say.
MAX_RANK = 16
# Adapters that one batch may mix, where the configuration does not say: each has a place in the engine's memory.
MAX_LORAS = 8
LORA_KEYS = ("max_loras", "max_cpu_loras", "max_lora_rank")


def with_their_bases(models: Sequence[ModelSettings]) -> list[ModelSettings]:
    """The same with all that an adapter has of its base. Raises `ValueError`."""
    by_id = {model.id: model for model in models}
    completed = [model if model.adapter is None else _completed(model, by_id) for model in models]
    hosts = {model.adapter.of for model in models if model.adapter is not None}
    for model in models:
        given = [name for name in LORA_KEYS if getattr(model.engine, name) is not None]
        if given and model.adapter is None and model.id not in hosts and not has_room(model):
            raise ValueError(
                f"{model.id}: engine.{given[0]} is for a model that has an adapter, and it has none; "
                "engine.max_loras makes room for those that come later"
            )
    return completed


def _completed(model: ModelSettings, by_id: Mapping[str, ModelSettings]) -> ModelSettings:
    assert model.adapter is not None
    base = by_id.get(model.adapter.of)
    if base is None or base.adapter is not None:
        what = "is an adapter itself" if base is not None else "is no chat model of this file"
        raise ValueError(f"{model.id}: adapter.of: {model.adapter.of!r} {what}")
    given = {name: getattr(base, name) for name in OF_ITS_BASE}
    if "capabilities" not in model.model_fields_set:
        given["capabilities"] = base.capabilities
    return model.model_copy(update=given)


def has_room(base: ModelSettings) -> bool:
    """Whether its engines take adapters while they run, and so are started with room whether there are any or not."""
    return base.engine.max_loras is not None


def adapter_source(model: ModelSettings) -> AdapterSource:
    """The source of an entry that is an adapter."""
    assert model.adapter is not None
    return AdapterSource(model.id, model.adapter.source, model.adapter.revision)


def max_rank_of(base: ModelSettings) -> int:
    """The largest rank of an adapter that the model's engines take."""
    return base.engine.max_lora_rank or MAX_RANK


def lora_arguments(base: ModelSettings, adapters: int) -> dict[str, Any]:
    """vLLM's arguments for so many adapters: places in a batch, and how many stay in the machine's memory."""
    if not adapters and not has_room(base):
        return {}
    max_loras = base.engine.max_loras or min(adapters, MAX_LORAS)
    return {
        "enable_lora": True,
        "max_loras": max_loras,
        "max_cpu_loras": base.engine.max_cpu_loras or max(adapters, max_loras),
        "max_lora_rank": max_rank_of(base),
    }


def broken_adapters(models: Sequence[ModelSettings]) -> dict[str, str]:
    """Those among them that cannot be served, and why, of adapters that lie in folders of this machine. One that comes
    from the hub is looked at by each replica, once it is fetched."""
    found = {}
    for model in models:
        if model.adapter is None or model.engine.kind != VLLM:
            continue
        source = adapter_source(model)
        if source.folder is not None:
            try:
                read_adapter(
                    source.id, source.folder, max_rank=max_rank_of(model), base=folder_of(model.checkpoint)
                )
            except BrokenAdapter as error:
                found[source.id] = str(error)
    return found


def check_folders(models: Sequence[ModelSettings]) -> None:
    """Raises `ConfigError` for an adapter among them that cannot be served."""
    for why in broken_adapters(models).values():
        raise ConfigError(why)


def with_adapter(model: ModelSettings, folder: Path) -> ModelSettings:
    """The same with a relative folder of its adapter under `folder`."""
    if model.adapter is None:
        return model
    return model.model_copy(update={"adapter": with_files(model.adapter, folder, "source")})
