"""Settings of logs, metrics and tracing."""

from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from serve.config.strict_section import Section
from serve.logs.lines import LogFormat
from serve.logs.outlet import LogLevel, LogPlan
from serve.tracing.collector import Protocol, TracingTerms


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


class TracingSettings(Section):
    endpoint: str | None = Field(
        None,
        description="A collector's address: http://collector:4318, or with `protocol: grpc` http://collector:4317. "
        "Default: no tracing.",
    )
    protocol: Protocol = Field("http", description="How OTLP is sent: `http` (protobuf) or `grpc`.")
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
    def terms(self) -> TracingTerms | None:
        """None where nothing is traced."""
        if self.endpoint is None:
            return None
        return TracingTerms(
            self.endpoint,
            self.protocol,
            self.sample_ratio,
            self.callers_per_s,
            self.tenants,
            self.headers_file,
        )

    @property
    def engine_terms(self) -> TracingTerms | None:
        """The same for engines; None where they send nothing."""
        return self.terms if self.engine else None

    def anchored(self, folder: Path) -> Self:
        """With the file of headers under `folder`, where its path is relative."""
        file = self.headers_file
        return self if file is None else self.model_copy(update={"headers_file": folder / file})
