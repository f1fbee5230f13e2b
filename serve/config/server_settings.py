"""Sections on the server itself: its port, its bounds, the demo, logs, traces and the ops port."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import quote, urlsplit

from pydantic import Field, field_validator, model_validator

from serve.config.values import Section, host_names, parse_networks, parse_origins
from serve.logs.lines import LogFormat
from serve.logs.outlet import LogLevel, LogPlan

# As `server.host`: each HTTP process listens on the address of the node where it is.
NODE = "node"
_HOSTS = (
    "Names, without a port, that requests may give in `Host` besides this machine's own (on loopback) or any address "
    "(elsewhere); others get 421. `*`: all. With none, all where host is not loopback."
)


class RaySettings(Section):
    logical_cpus: int = Field(16, ge=1, description="CPUs that Ray counts; replicas ask for one each.")
    object_store_mb: int = Field(128, ge=80, description="Megabytes of Ray's shared-memory object store.")
    address: str | None = Field(
        None, description="A running cluster to join; default: one is started for this server."
    )
    start_limit_s: float = Field(
        7200,
        gt=0,
        description="Seconds until the models that are kept up must run, downloads included; then the start ends and "
        "says which do not.",
    )
    replica_ports: tuple[int, int] | None = Field(
        None,
        description="First and last port that engines' replicas listen on, one each, on the nodes of `address`; "
        "default: any that is free.",
    )

    @model_validator(mode="after")
    def _a_range_of_ports(self) -> RaySettings:
        if self.replica_ports is None:
            return self
        first, last = self.replica_ports
        if not 1024 <= first <= last <= 65535:
            raise ValueError(f"replica_ports: {first} to {last} is no range of ports between 1024 and 65535")
        if self.address is None:
            raise ValueError("replica_ports: without ray.address no other machine reaches an engine")
        return self


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
    survivals: int = Field(
        2,
        ge=0,
        description="How often one chat goes on where its replica died; then the error. 0: it ends with its replica.",
    )
    survival_wait_s: float = Field(
        30,
        gt=0,
        description="Seconds that a chat whose replica died waits for one that goes on; then the error.",
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
        30,
        ge=0,
        le=1000,
        description="Milliseconds over which streamed tokens are gathered; up to three times as long where a replica "
        "has many streams; 0: each is sent by itself.",
    )
    drain_s: float = Field(5, ge=0, description="Seconds that running requests get when the server stops.")

    @field_validator("allowed_hosts")
    @classmethod
    def _are_names(cls, given: list[str]) -> list[str]:
        return host_names(given)

    @field_validator("trusted_proxies")
    @classmethod
    def _are_networks(cls, given: list[str]) -> list[str]:
        return [str(network) for network in parse_networks(given)]

    @field_validator("cors_origins")
    @classmethod
    def _are_origins(cls, given: list[str]) -> list[str]:
        return parse_origins(given)


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


class LogSettings(Section):
    format: LogFormat = Field(
        "text", description="Lines on standard error: `text` to be read by people, `json` one object a line."
    )
    level: LogLevel = Field(
        "warning", description="The least level that is written: `debug`, `info`, `warning` or `error`."
    )
    access: bool = Field(False, description="Write a line for each request when it is over.")

    def plan(self, socket: Path | None) -> LogPlan:
        return LogPlan(self.format, self.level, socket)


class WitnessSettings(Section):
    url: str = Field(
        pattern=r"^https?://\S{1,1000}$",
        description="Where the witness takes checkpoints: the prefix before `/add-checkpoint`.",
    )
    key: str = Field(description="Its key for cosignatures, as `name+id+key`.")

    @field_validator("key")
    @classmethod
    def _a_witness_key(cls, key: str) -> str:
        # Only where a witness is configured: a command that needs none is not to wait for cryptography.
        from billing.transparency.notes import COSIGNATURE, verifier

        if verifier(key).kind != COSIGNATURE:
            raise ValueError("is a log's key, not a witness's")
        return key.strip()


class TransparencySettings(Section):
    origin: str | None = Field(
        None,
        # What a signed note may have as the name of a key.
        pattern=r"^[!-*,-~]{1,200}$",
        description="Name of the transparency log, such as `ai.example.com/log`: it stands in every checkpoint and "
        "promise, so it stays as it is. None: the log is named by its key.",
    )
    witness: WitnessSettings | None = Field(
        None,
        description="Another party that cosigns checkpoints (C2SP tlog-witness), so that no two customers can be shown "
        "two logs.",
    )


class TenantSettings(Section):
    top: int = Field(
        ge=1, le=1000, description="Workspaces whose usage metrics name: those that cost most this month."
    )


class MetricsSettings(Section):
    engines: bool = Field(
        True,
        description="vLLM's own metrics (vllm:*); counting them takes a replica's process some 3 microseconds a token.",
    )
    tenants: TenantSettings | None = Field(
        None, description="Usage of the month by workspace, in /metrics; default: no metric names one."
    )


# How long the end of a process waits for its last spans.
TRACES_STOP_S = 1.0


class BadHeaders(ValueError):
    """The file of headers cannot be read, or is not one `Name: value` a line."""


class TracingSettings(Section):
    endpoint: str | None = Field(
        None,
        description="A collector's address: http://collector:4318, or with `protocol: grpc` http://collector:4317. "
        "Default: no tracing.",
    )
    protocol: Literal["http", "grpc"] = Field(
        "http", description="How OTLP is sent: `http` (protobuf) or `grpc`."
    )
    sample_ratio: float = Field(
        0.01, ge=0, le=1, description="The part of all requests that is traced, drawn by chance."
    )
    callers_per_s: float = Field(
        0,
        ge=0,
        le=1000,
        description="Requests a second of each HTTP process that are traced because their `traceparent` says so.",
    )
    tenants: bool = Field(False, description="Name workspace and project in spans, by their ids.")
    engine: bool = Field(True, description="Have vLLM send a span for each traced request, too.")
    headers_file: Path | None = Field(
        None, description="File with the headers that the collector wants, one `Name: value` a line."
    )

    @field_validator("endpoint")
    @classmethod
    def _is_an_address(cls, endpoint: str | None) -> str | None:
        if endpoint is not None:
            parts = urlsplit(endpoint)
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
                raise ValueError("must be http://HOST:PORT or https://HOST:PORT, without a password")
        return endpoint

    @model_validator(mode="after")
    def _has_somewhere_to_go(self) -> Self:
        defaults = {name: field.default for name, field in type(self).model_fields.items()}
        if self.endpoint is None and any(getattr(self, name) != value for name, value in defaults.items()):
            raise ValueError("endpoint is missing: nothing is traced without it")
        return self

    @model_validator(mode="after")
    def _has_no_engine_in_clear(self) -> Self:
        # vLLM's exporter would send the headers, and spans that never arrive, without TLS.
        if self.engine and self.protocol == "grpc" and (self.endpoint or "").startswith("https://"):
            raise ValueError(
                "engine: vLLM speaks gRPC without TLS, and the endpoint wants it: use protocol: http, or engine: false"
            )
        return self

    @property
    def of_engines(self) -> Self | None:
        """None where engines send nothing."""
        return self if self.endpoint is not None and self.engine else None

    @property
    def traces_url(self) -> str:
        """The endpoint, of OTLP over HTTP with its usual path where it names none."""
        endpoint = self.endpoint or ""
        if self.protocol == "grpc" or urlsplit(endpoint).path.strip("/"):
            return endpoint
        return endpoint.rstrip("/") + "/v1/traces"

    def engine_environment(self) -> dict[str, str]:
        """For the OpenTelemetry of an engine: what is not the child of a traced request is not traced. Raises
        `BadHeaders`."""
        given = ",".join(f"{quote(name)}={quote(value)}" for name, value in self.headers().items())
        return {
            "OTEL_SERVICE_NAME": "pith-engine",
            "OTEL_TRACES_SAMPLER": "parentbased_always_off",
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc" if self.protocol == "grpc" else "http/protobuf",
            # How long a collector that is away can hold up the end of an engine.
            "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": f"{TRACES_STOP_S:g}",
            "OTEL_BSP_SCHEDULE_DELAY": "1000",
            **({"OTEL_EXPORTER_OTLP_TRACES_HEADERS": given} if given else {}),
        }

    def headers(self) -> dict[str, str]:
        """Headers that the collector wants with each batch, a key for one; names in lower case. Raises `BadHeaders`."""
        if self.headers_file is None:
            return {}
        try:
            lines = self.headers_file.read_text(encoding="ascii").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise BadHeaders(f"{self.headers_file}: cannot be read: {type(error).__name__}") from None
        return dict(self._header(number, line) for number, line in enumerate(lines, 1) if line.strip())

    def _header(self, number: int, line: str) -> tuple[str, str]:
        name, colon, value = line.partition(":")
        if not colon or not name.strip().replace("-", "").isalnum():
            # What the line says may be a secret.
            raise BadHeaders(f"{self.headers_file}: line {number} is not `Name: value`")
        return name.strip().lower(), value.strip()

    def anchored(self, folder: Path) -> Self:
        """With the file of headers under `folder`, where its path is relative."""
        file = self.headers_file
        return self if file is None else self.model_copy(update={"headers_file": folder / file})
