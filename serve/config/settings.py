"""The configuration file, typed once. Every key has a unit and a description, and an unknown key is refused."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator

from serve.config.chat_models import ModelSettings
from serve.config.compression_models import CompressionSettingsSection
from serve.config.networks import networks
from serve.config.node import parse_node
from serve.config.strict_section import Section

CHECKOUT = Path(__file__).resolve().parents[2]
DEFAULT_CONFIG = CHECKOUT / "configs/embedded.yaml"
IN_MEMORY = "memory://"
S = TypeVar("S", bound=Section)


class ConfigError(ValueError):
    """The configuration cannot be used; the message names the file, the key's path and the reason."""


class ServerSettings(Section):
    host: str = Field("127.0.0.1", description="Address that the HTTP server listens on.")
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
        10_000, ge=1, description="Open connections of each HTTP process; the next one gets 503."
    )
    max_connections_per_address: int = Field(
        512,
        ge=1,
        description="Open connections of one client's address (IPv6: its /64) in each HTTP process; the next one gets "
        "429. Loopback and trusted_proxies are not counted.",
    )
    trusted_proxies: list[str] = Field(
        [],
        description="Networks (10.0.0.0/8) of proxies whose X-Forwarded-For and X-Forwarded-Proto are believed.",
    )
    retry_after_s: int = Field(
        10, ge=1, description="Seconds named by Retry-After when an engine is unavailable."
    )
    coalesce_ms: int = Field(
        30, ge=0, le=1000, description="Milliseconds over which streamed tokens are gathered."
    )
    drain_s: float = Field(5, ge=0, description="Seconds that running requests get when the server stops.")

    @field_validator("trusted_proxies")
    @classmethod
    def _are_networks(cls, given: list[str]) -> list[str]:
        return [str(network) for network in networks(given)]


class OpsSettings(Section):
    host: str = Field("127.0.0.1", description="Address that /metrics listens on; it asks for no key.")
    port: int = Field(9464, ge=0, le=65535, description="TCP port of /metrics; 0 turns metrics off.")


class RaySettings(Section):
    logical_cpus: int = Field(16, ge=1, description="CPUs that Ray counts; replicas ask for one each.")
    object_store_mb: int = Field(128, ge=80, description="Megabytes of Ray's shared-memory object store.")
    address: str | None = Field(
        None, description="A running cluster to join; default: one is started for this server."
    )


class BillingSettings(Section):
    database_url: str = Field("sqlite:///var/pith.db", description="SQLAlchemy URL of the ledger.")
    spool_path: Path = Field(
        Path("var/spool.db"), description="Local file that keeps usage while the ledger is down."
    )
    collection_threshold_cents: int = Field(
        500, ge=1, description="Minimum uncollected balance, in cents, at which a collection is cut."
    )
    collection_hook: list[str] = Field(
        [], description="Program and arguments that hand a collection to a payment system; none: by hand."
    )
    collection_hook_timeout_s: float = Field(
        30, gt=0, le=600, description="Seconds that one run of the collection hook may take."
    )
    upkeep_s: float = Field(
        30,
        gt=0,
        description="Seconds between replays of the spool, and between checks for due collections.",
    )
    key_cache_s: float = Field(5, ge=0, le=5, description="Seconds for which a checked key is cached.")
    key_outage_s: float = Field(
        60,
        ge=0,
        le=3600,
        description="Seconds for which a checked key goes on working while the ledger is down.",
    )
    spool_max_rows: int = Field(
        100_000,
        ge=1,
        description="Usage events in the spool at which no more work is taken on without a ledger.",
    )
    offline_allowance_usd: Annotated[Decimal, Field(ge=0, le=1_000_000, decimal_places=9)] = Field(
        Decimal(0),
        description="US dollars that each workspace may spend in each ingress replica while the ledger is down.",
    )
    rate_limit_storage: str = Field(
        IN_MEMORY,
        description="Where rate limits are counted: memory://, for one machine, or a Redis that several share.",
    )
    rate_limit_outage: Literal["refuse", "allow"] = Field(
        "refuse",
        description="Without Redis: refuse projects that have limits (503), or allow what each replica counts itself.",
    )

    @field_validator("collection_hook")
    @classmethod
    def _runnable(cls, argv: list[str]) -> list[str]:
        if argv and not argv[0]:
            raise ValueError("the first item must name a program")
        if any("\0" in item for item in argv):
            raise ValueError("must not contain NUL")
        return argv

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
        if uri != IN_MEMORY and not shared:
            raise ValueError("use memory://, redis://HOST:PORT/DB, rediss://HOST:PORT/DB or unix:///SOCKET")
        return uri


class DemoSettings(Section):
    enabled: bool = Field(True, description="Make a demo workspace and key at start.")
    key_path: Path = Field(Path("var/demo-key"), description="File that holds the demo key (mode 0600).")


class Settings(Section):
    state_dir: Path = Field(Path("var"), description="Folder for what the server writes.")
    nodes: list[str] = Field(
        [],
        description="Machines that the file is for, as `8xH100-80GB` or `cpu:16-64GB`; `pith config check` uses them.",
    )
    server: ServerSettings = ServerSettings()
    ops: OpsSettings = OpsSettings()
    ray: RaySettings = RaySettings()
    billing: BillingSettings = BillingSettings()
    demo: DemoSettings = DemoSettings()
    models: list[ModelSettings] = Field(description="The catalog, in order; the first is the default model.")
    compression: CompressionSettingsSection = CompressionSettingsSection()

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
        return models

    @model_validator(mode="after")
    def _shared_limits_need_shared_storage(self) -> Settings:
        joined = self.ray.address is not None
        if joined and self.server.ingress_replicas > 1 and self.billing.rate_limit_storage == IN_MEMORY:
            raise ValueError(
                "ray.address names a cluster, whose ingress processes (server.ingress_replicas) may be on several "
                "machines, so billing.rate_limit_storage must be shared (redis://…)"
            )
        return self

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
        anchored = {"database_url": url, "spool_path": spool, "collection_hook": hook}
        return self.model_copy(
            update={
                "state_dir": folder / self.state_dir,
                "billing": billing.model_copy(update=anchored),
                "demo": self.demo.model_copy(update={"key_path": folder / self.demo.key_path}),
                "models": [_with_files(model, folder, "checkpoint") for model in self.models],
                "compression": self.compression.model_copy(
                    update={
                        "models": [
                            _with_files(model, folder, "checkpoint", "tokenizer", "calibration")
                            for model in self.compression.models
                        ]
                    }
                ),
            }
        )


def load_anchored(path: Path) -> Settings:
    """What `load_settings` gives, with relative paths under `anchor_of(path)`, wherever the command was called."""
    return load_settings(path).anchored(anchor_of(path))


def anchor_of(path: Path) -> Path:
    """What the relative paths of a configuration file are relative to: the file's folder, or for a file in the checkout
    (such as those of `configs/`) the checkout. A link counts where it is, not where it leads."""
    folder = path.absolute().parent
    return CHECKOUT if folder.resolve().is_relative_to(CHECKOUT) else folder


def load_settings(path: Path) -> Settings:
    """Read and check a configuration file. Raises `ConfigError` with one line per problem."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise ConfigError(f"{path}: cannot be read: {reason}") from error
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # An invalid date or number raises ValueError, and endless nesting RecursionError.
        raise ConfigError(f"{path}: is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: must be a mapping")
    try:
        return Settings.model_validate(document)
    except ValidationError as error:
        raise ConfigError("; ".join(f"{path}: {_problem(issue)}" for issue in error.errors())) from error


def _with_files(model: S, folder: Path, *names: str) -> S:
    files = {name: getattr(model, name) for name in names}
    found = {name: str(folder / file) for name, file in files.items() if file and file.startswith(".")}
    return model.model_copy(update=found)


def _problem(issue: Any) -> str:
    where = " ".join(".".join(str(part) for part in issue["loc"]).split()) or "the file"
    if issue["type"] == "extra_forbidden":
        return f"{where}: unknown key"
    return f"{where}: {issue['msg'].removeprefix('Value error, ')}"
