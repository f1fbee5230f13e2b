"""The collector that spans go to, and the tracer, if any: OpenTelemetry is imported only where one is configured."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote, urlsplit

from serve.tracing.spans import NO_TRACER, Tracer

if TYPE_CHECKING:
    from serve.tracing.otlp import SpanCounts

Protocol = Literal["http", "grpc"]
# Seconds for one batch of spans, attempts that failed included.
EXPORT_S = 5.0
STOP_S = 1.0


class BadHeaders(ValueError):
    """The file of headers cannot be read, or is not one `Name: value` a line."""


@dataclass(frozen=True, slots=True)
class TracingTerms:
    """The address of a collector, and the share of requests that is traced."""

    endpoint: str
    protocol: Protocol
    sample_ratio: float
    callers_per_s: float
    tenants: bool
    headers_file: Path | None

    @property
    def traces_url(self) -> str:
        """The endpoint, of OTLP over HTTP with its usual path where it names none."""
        if self.protocol == "grpc" or urlsplit(self.endpoint).path.strip("/"):
            return self.endpoint
        return self.endpoint.rstrip("/") + "/v1/traces"

    def engine_environment(self) -> dict[str, str]:
        """For the OpenTelemetry of an engine: what is not the child of a traced request is not traced. Raises
        `BadHeaders`."""
        given = ",".join(f"{quote(name)}={quote(value)}" for name, value in self.headers().items())
        return {
            "OTEL_SERVICE_NAME": "pith-engine",
            "OTEL_TRACES_SAMPLER": "parentbased_always_off",
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc" if self.protocol == "grpc" else "http/protobuf",
            # How long a collector that is away can hold up the end of an engine.
            "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": f"{STOP_S:g}",
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


class Tracing:
    """A tracer, and the end of it."""

    def __init__(self, terms: TracingTerms | None, counts: SpanCounts) -> None:
        """Raises `BadHeaders`."""
        self.tracer: Tracer = NO_TRACER
        self._stop = None
        if terms is not None:
            from serve.tracing.otlp import OtlpTracer, Sampling, exporter_of

            sampling = Sampling(terms.sample_ratio, terms.callers_per_s)
            opened = OtlpTracer(sampling, exporter_of(terms, terms.headers()), counts)
            self.tracer, self._stop = opened, opened.stop

    async def close(self) -> None:
        """Send what waits, for a second at most."""
        if self._stop is not None:
            await asyncio.to_thread(self._stop, STOP_S)
