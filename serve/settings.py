"""The configuration file, typed once. Every key has a unit and a description, and an unknown key is refused."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator

from serve.compression_settings import CompressionSettingsSection
from serve.section import Section

Price = Annotated[Decimal, Field(ge=0, le=1_000_000, max_digits=15, decimal_places=6)]
MODELS_SERVED = 4


class ConfigError(ValueError):
    """The configuration cannot be used; the message names the file, the key's path and the reason."""


class ServerSettings(Section):
    host: str = Field("127.0.0.1", description="Address that the HTTP server listens on.")
    port: int = Field(8000, ge=1, le=65535, description="TCP port of the HTTP server.")
    ingress_replicas: int = Field(1, ge=1, le=64, description="HTTP processes that share the port.")
    max_body_bytes: int = Field(
        8 * 2**20, ge=1024, description="Largest request body in bytes; above it: 422."
    )
    start_wait_s: float = Field(
        180, gt=0, description="Seconds a request waits for a replica (start included) before 503."
    )
    stall_s: float = Field(
        30, gt=1, description="Seconds without a sign of life from a replica that took a request before 502."
    )
    progress_s: float = Field(
        300, gt=1, description="Seconds without a new token from a replica that took a request before 502."
    )
    longest_request_s: float = Field(
        3600, gt=1, description="Seconds that a request may take at most once a replica took it; then 502."
    )
    retry_after_s: int = Field(
        10, ge=1, description="Seconds named by Retry-After when an engine is unavailable."
    )
    coalesce_ms: int = Field(
        30, ge=0, le=1000, description="Milliseconds over which streamed tokens are gathered."
    )
    drain_s: float = Field(5, ge=0, description="Seconds that running requests get when the server stops.")


class OpsSettings(Section):
    host: str = Field("127.0.0.1", description="Address that /metrics listens on; it asks for no key.")
    port: int = Field(9464, ge=0, le=65535, description="TCP port of /metrics; 0 turns metrics off.")


class RaySettings(Section):
    logical_cpus: int = Field(16, ge=1, description="CPUs that Ray counts; replicas ask for one each.")
    object_store_mb: int = Field(128, ge=80, description="Megabytes of Ray's shared-memory object store.")
    address: str | None = Field(
        None, description="A running cluster to join; absent: one is started for this server."
    )


class BillingSettings(Section):
    database_url: str = Field("sqlite:///var/pith.db", description="SQLAlchemy URL of the ledger.")
    spool_path: Path = Field(
        Path("var/spool.db"), description="Local file that keeps usage while the ledger is away."
    )
    collection_threshold_cents: int = Field(
        500, ge=1, description="Uncollected cents at which a collection is cut."
    )
    upkeep_s: float = Field(
        30, gt=0, description="Seconds between replays of the spool and sweeps of dead holds."
    )
    key_cache_s: float = Field(
        5, ge=0, le=5, description="Seconds for which a checked key is trusted unseen."
    )
    key_outage_s: float = Field(
        60,
        ge=0,
        le=3600,
        description="Seconds for which a checked key goes on working while the ledger is away.",
    )
    spool_max_rows: int = Field(
        100_000,
        ge=1,
        description="Usage events in the spool at which no more work is taken on without a ledger.",
    )
    offline_allowance_usd: Annotated[Decimal, Field(ge=0, le=1_000_000, decimal_places=9)] = Field(
        Decimal(0),
        description="US dollars that each workspace may spend in each ingress replica while the ledger is away.",
    )
    rate_limit_storage: str = Field(
        "memory://", description="Where rate limits are counted: memory://, or a Redis that replicas share."
    )
    rate_limit_outage: Literal["refuse", "allow"] = Field(
        "refuse",
        description="Without Redis: refuse projects that have limits (503), or allow what each replica counts itself.",
    )

    @field_validator("database_url")
    @classmethod
    def _known_database(cls, url: str) -> str:
        names_a_file = url.startswith("sqlite:///") and url not in ("sqlite:///", "sqlite:///:memory:")
        if not names_a_file and not url.startswith("postgresql+asyncpg://"):
            raise ValueError("use sqlite:///PATH or postgresql+asyncpg://USER@HOST/NAME")
        return url

    @field_validator("rate_limit_storage")
    @classmethod
    def _known_storage(cls, uri: str) -> str:
        # Never repeated whole: it may hold a password.
        scheme, separator, rest = uri.partition("://")
        shared = separator and rest and scheme in ("redis", "rediss", "unix")
        if uri != "memory://" and not shared:
            raise ValueError("use memory://, redis://HOST:PORT/DB, rediss://HOST:PORT/DB or unix:///SOCKET")
        return uri


class PriceSettings(Section):
    input_usd_per_mtok: Price = Field(description="US dollars per million prompt tokens.")
    output_usd_per_mtok: Price = Field(description="US dollars per million completion tokens.")
    minimum_request_usd: Annotated[Decimal, Field(ge=0, le=1000, max_digits=15, decimal_places=9)] = Field(
        description="US dollars that a successful request costs at least."
    )


class CapabilitySettings(Section):
    tools: bool = Field(False, description="Function tools may be offered to the model.")
    reasoning_effort: bool = Field(False, description="The template takes `reasoning_effort`.")
    media: list[Literal["image_url", "input_audio", "video_url"]] = Field(
        [], description="Content parts beside text."
    )
    template_roles: list[str] = Field(
        ["system", "user", "assistant", "tool"], description="Roles that the chat template knows."
    )
    chat_template_kwargs: list[str] = Field([], description="Template arguments that callers may set.")


class EngineSettings(Section):
    """vLLM engine arguments, under vLLM's names (https://docs.vllm.ai, `EngineArgs`). Remote code has no key."""

    dtype: Literal["auto", "float32", "bfloat16", "float16"] | None = None
    quantization: str | None = None
    tensor_parallel_size: int | None = Field(None, ge=1)
    pipeline_parallel_size: int | None = Field(None, ge=1)
    data_parallel_size: int | None = Field(None, ge=1)
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


class AcceleratorSettings(Section):
    kind: Literal["cpu", "gpu"] = Field("cpu", description="What the engine runs on.")
    type: str | None = Field(None, description="Ray's accelerator type, for placement (for example H100).")


class ReplicaSettings(Section):
    min: int = Field(1, ge=0, description="Replicas kept up; 0 starts the model on its first request.")
    max: int = Field(1, ge=1, description="Replicas at most.")
    max_ongoing_requests: int = Field(256, ge=1, description="Requests that one replica works on at once.")
    max_queued_requests: int = Field(
        1024, ge=-1, description="Requests that wait in each ingress; above: 503."
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
        return self


class ModelSettings(Section):
    id: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,126}$", description="What callers send as `model`."
    )
    name: str = Field(min_length=1, description="Display name.")
    blurb: str = Field(min_length=1, description="One or two sentences for the public catalog.")
    checkpoint: str = Field(
        description="Hub name, a folder, or `embedded:NAME` for a model that pith carries."
    )
    revision: str | None = Field(None, description="Commit of the hub repository.")
    context_length: int = Field(ge=16, le=10_000_000, description="Tokens of prompt and completion together.")
    price: PriceSettings
    capabilities: CapabilitySettings = CapabilitySettings()
    engine: EngineSettings = EngineSettings()
    accelerator: AcceleratorSettings = AcceleratorSettings()
    replicas: ReplicaSettings = ReplicaSettings()
    environment: dict[str, str] = Field({}, description="Environment variables of the engine's processes.")


class DemoSettings(Section):
    enabled: bool = Field(True, description="Make a demo workspace and key at start.")
    key_path: Path = Field(Path("var/demo-key"), description="File that holds the demo key (mode 0600).")


class Settings(Section):
    state_dir: Path = Field(Path("var"), description="Folder for what the server writes.")
    server: ServerSettings = ServerSettings()
    ops: OpsSettings = OpsSettings()
    ray: RaySettings = RaySettings()
    billing: BillingSettings = BillingSettings()
    demo: DemoSettings = DemoSettings()
    models: list[ModelSettings] = Field(description="The catalog, in order; the first is the default model.")
    compression: CompressionSettingsSection = CompressionSettingsSection()

    @field_validator("models")
    @classmethod
    def _four_different_models(cls, models: list[ModelSettings]) -> list[ModelSettings]:
        if len(models) != MODELS_SERVED:
            raise ValueError(f"the catalog holds {MODELS_SERVED} models, and this one has {len(models)}")
        ids = [model.id for model in models]
        for model_id in ids:
            if ids.count(model_id) > 1:
                raise ValueError(f"model id {model_id!r} stands twice")
        return models

    @model_validator(mode="after")
    def _shared_limits_need_shared_storage(self) -> Settings:
        if self.server.ingress_replicas > 1 and self.billing.rate_limit_storage == "memory://":
            raise ValueError(
                "server.ingress_replicas is above 1, so billing.rate_limit_storage must be shared (redis://…)"
            )
        return self

    def anchored(self, folder: Path) -> Settings:
        """The same settings with every relative path under `folder`, for processes that run elsewhere."""
        billing = self.billing
        scheme, _, path = billing.database_url.partition(":///")
        url = f"sqlite:///{folder / path}" if scheme == "sqlite" else billing.database_url
        spool = folder / billing.spool_path
        return self.model_copy(
            update={
                "state_dir": folder / self.state_dir,
                "billing": billing.model_copy(update={"database_url": url, "spool_path": spool}),
                "demo": self.demo.model_copy(update={"key_path": folder / self.demo.key_path}),
            }
        )


def load_settings(path: Path) -> Settings:
    """Read and check a configuration file. Raises `ConfigError` with one line a problem."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise ConfigError(f"{path}: cannot be read: {reason}") from error
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # A date or a number that is none is a ValueError, and a nesting without end a RecursionError.
        raise ConfigError(f"{path}: is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: must hold a mapping of keys")
    try:
        return Settings.model_validate(document)
    except ValidationError as error:
        raise ConfigError("; ".join(f"{path}: {_problem(issue)}" for issue in error.errors())) from error


def _problem(issue: Any) -> str:
    where = " ".join(".".join(str(part) for part in issue["loc"]).split()) or "the file"
    if issue["type"] == "extra_forbidden":
        return f"{where}: unknown key"
    return f"{where}: {issue['msg'].removeprefix('Value error, ')}"
