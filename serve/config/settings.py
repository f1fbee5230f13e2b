"""The configuration file, typed once. Every key has a unit and a description, and an unknown key is refused."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, ClassVar

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator

from serve.config.adapters import with_adapter, with_their_bases
from serve.config.batches import BatchSettings
from serve.config.billing import IN_MEMORY, BillingSettings, WebhookSettings
from serve.config.chat_models import ModelSettings
from serve.config.compression_models import CompressionSettingsSection
from serve.config.errors import ConfigError
from serve.config.logs import LogSettings
from serve.config.metrics import MetricsSettings
from serve.config.models_by_kind import place_in_file, sorted_by_kind
from serve.config.paths import anchor_of, require_own, text_of
from serve.config.ray_cluster import NODE, RaySettings
from serve.config.retention import ResponseSettings
from serve.config.retrieval_models import RetrievalModelSettings, host_of
from serve.config.strict_section import Section, with_files
from serve.config.tracing import TracingSettings
from serve.config.values.hosts import host_names
from serve.config.values.networks import networks
from serve.config.values.node import parse_node
from serve.config.values.origins import origins

_HOSTS = (
    "Names, without a port, that requests may give in `Host` besides this machine's own (on loopback) or any address "
    "(elsewhere); others get 421. `*`: all. With none, all where host is not loopback."
)


class ServerSettings(Section):
    host: str = Field(
        "127.0.0.1",
        description="Address that the HTTP server listens on; `node`: on a cluster, each HTTP process on its node's.",
    )
    port: int = Field(8000, ge=1, le=65535, description="TCP port of the HTTP server.")
    ingress_replicas: int = Field(
        2, ge=1, le=64, description="HTTP processes that share the port; with two, one may die unnoticed."
    )
    max_body_bytes: int = Field(
        8 * 2**20, ge=1024, description="Largest request body in bytes; above it: 422."
    )
    start_wait_s: float = Field(
        180, gt=0, description="Seconds a request waits for a replica (start included) before 503."
    )
    stall_s: float = Field(
        30, gt=1, description="Seconds without a message from a replica that took a request; then 502."
    )
    progress_s: float = Field(
        300, gt=1, description="Seconds without a new token from a replica that took a request before 502."
    )
    longest_request_s: float = Field(
        3600, gt=1, description="Maximum seconds for a request once a replica has taken it; then 502."
    )
    send_timeout_s: float = Field(
        30, gt=0, description="Seconds without a client reading any of its reply before it counts as gone."
    )
    idle_timeout_s: float = Field(
        30, gt=0, description="Seconds after which a connection that is asked for nothing is closed."
    )
    head_timeout_s: float = Field(
        10, gt=0, description="Seconds from the first byte of a request to the end of its headers; then 408."
    )
    body_timeout_s: float = Field(
        30, gt=0, description="Seconds that a request's body may take whatever its size; then 408."
    )
    body_bytes_per_s: int = Field(
        8192, ge=1, description="Bytes of a body for which one second more is granted."
    )
    max_connections: int = Field(
        10_000,
        ge=1,
        description="Open connections of each HTTP process; one that rests goes for the next, which else gets 503.",
    )
    max_connections_per_address: int = Field(
        512,
        ge=1,
        description="Open connections of one client's address (IPv6: its /64) in each HTTP process; one of its own "
        "that rests goes for the next, which else gets 429. Loopback and trusted_proxies are not counted.",
    )
    trusted_proxies: list[str] = Field(
        [],
        description="Networks (10.0.0.0/8) of proxies whose X-Forwarded-For and X-Forwarded-Proto are believed.",
    )
    cors_origins: list[str] = Field(
        [],
        description="Origins (https://chat.example.com) whose pages may call the API from a browser; `*`: all, without "
        "credentials; none: closed.",
    )
    allowed_hosts: list[str] = Field([], description=_HOSTS)
    playground: bool = Field(
        True,
        description="Serve the playground, a page to try everything on, at `/`; without it `/` is a 404.",
    )
    retry_after_s: int = Field(
        10, ge=1, description="Seconds named by Retry-After when an engine is unavailable."
    )
    coalesce_ms: int = Field(
        30, ge=0, le=1000, description="Milliseconds over which streamed tokens are gathered."
    )
    drain_s: float = Field(5, ge=0, description="Seconds that running requests get when the server stops.")

    @field_validator("allowed_hosts")
    @classmethod
    def _are_names(cls, given: list[str]) -> list[str]:
        return host_names(given)

    @field_validator("trusted_proxies")
    @classmethod
    def _are_networks(cls, given: list[str]) -> list[str]:
        return [str(network) for network in networks(given)]

    @field_validator("cors_origins")
    @classmethod
    def _are_origins(cls, given: list[str]) -> list[str]:
        return origins(given)


class OpsSettings(Section):
    host: str = Field("127.0.0.1", description="Address of the ops port; /metrics asks for no key.")
    port: int = Field(9464, ge=0, le=65535, description="TCP port of /metrics and the admin API; 0: neither.")
    allowed_hosts: list[str] = Field([], description=_HOSTS)
    admin: bool | None = Field(
        None, description="Serve the admin API on the ops port; by default where host is loopback."
    )
    admin_key_file: Path | None = Field(
        None, description="File of admin keys, one a line (mode 0600); default: admin-key in state_dir."
    )

    @field_validator("allowed_hosts")
    @classmethod
    def _are_names(cls, given: list[str]) -> list[str]:
        return host_names(given)


class DemoSettings(Section):
    enabled: bool = Field(True, description="Make a demo workspace and key at start.")
    key_path: Path = Field(Path("var/demo-key"), description="File that holds the demo key (mode 0600).")
    monthly_limit_usd: Annotated[Decimal, Field(ge=0, le=1_000_000, decimal_places=9)] | None = Field(
        Decimal(25),
        description="Dollars that the demo workspace may spend in a month, set anew at each start; null: no limit.",
    )

    @property
    def monthly_limit_nano_usd(self) -> int | None:
        return None if self.monthly_limit_usd is None else int(self.monthly_limit_usd * 10**9)


class Settings(Section):
    state_dir: Path = Field(Path("var"), description="Folder for what the server writes.")
    nodes: list[str] = Field(
        [],
        description="Machines that the file is for, as `8xH100-80GB` or `cpu:16-64GB`; `pith config check` uses them.",
    )
    server: ServerSettings = ServerSettings()
    ops: OpsSettings = OpsSettings()
    metrics: MetricsSettings = MetricsSettings()
    ray: RaySettings = RaySettings()
    billing: BillingSettings = BillingSettings()
    demo: DemoSettings = DemoSettings()
    models: list[ModelSettings] = Field(
        description="The catalog, in order; the first is the default model. An entry of `kind: embedding` or `rerank` "
        "is another kind of model, with keys of its own; `chat` is the default."
    )
    retrieval_models: list[RetrievalModelSettings] = Field(
        [], description="Set by `models`; no key of a file."
    )
    compression: CompressionSettingsSection = CompressionSettingsSection()
    batches: BatchSettings = BatchSettings()
    responses: ResponseSettings = ResponseSettings()
    logs: LogSettings = LogSettings()
    webhooks: WebhookSettings = WebhookSettings()
    tracing: TracingSettings = TracingSettings()

    @model_validator(mode="before")
    @classmethod
    def _models_by_kind(cls, document: Any) -> Any:
        if not isinstance(document, dict):
            return document
        if "retrieval_models" in document:
            raise ValueError("retrieval_models: unknown key; a model of any kind is an entry of models")
        return sorted_by_kind(document)

    @field_validator("nodes")
    @classmethod
    def _machines(cls, nodes: list[str]) -> list[str]:
        for node in nodes:
            parse_node(node)
        return nodes

    @field_validator("models")
    @classmethod
    def _different_models(cls, models: list[ModelSettings]) -> list[ModelSettings]:
        if not models:
            raise ValueError("the catalog is empty")
        ids = [model.id for model in models]
        for model_id in ids:
            if ids.count(model_id) > 1:
                raise ValueError(f"model id {model_id!r} is listed twice")
        return with_their_bases(models)

    @model_validator(mode="after")
    def _retrieval_models_fit(self) -> Settings:
        taken = {model.id for model in self.models} | {model.id for model in self.compression.models}
        for model in self.retrieval_models:
            if model.id in taken:
                raise ValueError(f"model id {model.id!r} is listed twice")
            taken.add(model.id)
            host_of(model, self.compression.models)
        return self

    @model_validator(mode="after")
    def _shared_limits_need_shared_storage(self) -> Settings:
        joined = self.ray.address is not None
        if joined and self.server.ingress_replicas > 1 and self.billing.rate_limit_storage == IN_MEMORY:
            raise ValueError(
                "ray.address names a cluster, whose ingress processes (server.ingress_replicas) may be on several "
                "machines, so billing.rate_limit_storage must be shared (redis://…)"
            )
        return self

    @model_validator(mode="after")
    def _only_a_cluster_has_nodes(self) -> Settings:
        if self.server.host == NODE and self.ray.address is None:
            raise ValueError("server.host: `node` is for a cluster, and there is no ray.address")
        return self

    @property
    def engine_models(self) -> list[ModelSettings]:
        """The chat models with engines of their own: all but adapters."""
        return [model for model in self.models if model.adapter is None]

    def adapters_of(self, model_id: str) -> list[ModelSettings]:
        """The entries that the engines of this model serve beside it."""
        return [model for model in self.models if model.adapter is not None and model.adapter.of == model_id]

    def anchored(self, folder: Path) -> Settings:
        """The same settings with every relative path under `folder`, for processes that run elsewhere.

        A checkpoint or a tokenizer is such a path where it begins with a dot; else it may be a name on the hub.
        """
        billing = self.billing
        scheme, _, path = billing.database_url.partition(":///")
        url = f"sqlite:///{folder / path}" if scheme == "sqlite" else billing.database_url
        spool = folder / billing.spool_path
        hook = list(billing.collection_hook)
        if hook and "/" in hook[0]:
            # A bare name is looked up on PATH.
            hook[0] = str(folder / hook[0])
        archive = billing.archive.model_copy(update={"folder": folder / billing.archive.folder})
        anchored = {"database_url": url, "spool_path": spool, "collection_hook": hook, "archive": archive}
        return self.model_copy(
            update={
                "state_dir": folder / self.state_dir,
                "billing": billing.model_copy(update=anchored),
                "tracing": self.tracing.anchored(folder),
                "demo": self.demo.model_copy(update={"key_path": folder / self.demo.key_path}),
                "ops": _with_folder(self.ops, folder),
                "models": [
                    with_adapter(with_files(model, folder, "checkpoint"), folder) for model in self.models
                ],
                "retrieval_models": [
                    with_files(model, folder, "checkpoint") for model in self.retrieval_models
                ],
                "compression": self.compression.model_copy(
                    update={
                        "models": [
                            with_files(model, folder, "checkpoint", "tokenizer", "calibration")
                            for model in self.compression.models
                        ]
                    }
                ),
            }
        )


def load_anchored(path: Path) -> Settings:
    """What `load_settings` gives, with relative paths under `anchor_of(path)`, wherever the command was called."""
    require_own(path)
    return load_settings(path).anchored(anchor_of(path))


class _Loader(yaml.SafeLoader):
    """PyYAML's safe one as it was at first: a library of vLLM's, where it is imported too, takes dates out of it."""

    yaml_constructors: ClassVar[dict[str | None, Any]] = dict(yaml.SafeLoader.yaml_constructors)


def load_settings(path: Path) -> Settings:
    """Read and check a configuration file. Raises `ConfigError` with one line per problem."""
    text = text_of(path)
    try:
        document = yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # An invalid date or number raises ValueError, and endless nesting RecursionError.
        raise ConfigError(f"{path}: is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: must be a mapping")
    try:
        return Settings.model_validate(document)
    except ValidationError as error:
        problems = [_problem(issue, document) for issue in error.errors()]
        raise ConfigError("; ".join(f"{path}: {problem}" for problem in problems)) from error


def _with_folder(ops: OpsSettings, folder: Path) -> OpsSettings:
    file = ops.admin_key_file
    return ops if file is None else ops.model_copy(update={"admin_key_file": folder / file})


def _problem(issue: Any, document: Mapping[str, Any]) -> str:
    where = (
        " ".join(".".join(str(part) for part in place_in_file(issue["loc"], document)).split()) or "the file"
    )
    if issue["type"] == "extra_forbidden":
        return f"{where}: unknown key"
    return f"{where}: {issue['msg'].removeprefix('Value error, ')}"
