"""The end of every request's record: its count, and where these are asked for its line in the log and its span."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from time import perf_counter
from typing import Any, get_args

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from billing.errors import LimitName, RateLimited
from serve.config.server_settings import LogSettings, TracingSettings
from serve.logs.lines import FIELDS, name_lines
from serve.logs.outlet import ACCESS
from serve.metrics.counts import Families
from serve.tracing.request_record import RequestRecord, Tracer, remote_parent, take_record

logger = logging.getLogger(ACCESS)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
UNMATCHED = "unmatched"
NO_RESPONSE = "none"
# By the names of its line, the attributes of its span.
ATTRIBUTES = {
    "method": "http.request.method",
    "route": "http.route",
    "status": "http.response.status_code",
    "ended": "pith.ended",
    "model": "gen_ai.request.model",
    "stream": "pith.stream",
    "prompt_tokens": "gen_ai.usage.input_tokens",
    "completion_tokens": "gen_ai.usage.output_tokens",
    "metering": "pith.metering",
    "workspace_id": "pith.workspace_id",
    "project_id": "pith.project_id",
}
TENANT = frozenset({"workspace_id", "project_id"})
# Scope and name of a limit.
LIMITS = (
    *(
        (scope, name)
        for scope in ("key", "person", "tag", "project", "workspace")
        for name in get_args(LimitName)
    ),
    *(("demo", name) for name in ("requests", "in_flight")),
)


class HttpMetrics:
    """The counters of this process's HTTP server."""

    def __init__(self, families: Families) -> None:
        # Looked up once for each set of labels: the templates of routes and a few methods and statuses.
        self._requests_of = cache(partial(families.counter, "pith_http_requests"))
        self._duration_of = cache(partial(families.histogram, "pith_http_request_duration_seconds"))
        self.in_flight = families.gauge("pith_http_requests_in_flight")
        families.gauge("pith_ingress_replicas").set(1)
        self._refusals = {labels: families.counter("pith_rate_limit_refusals", *labels) for labels in LIMITS}

    def end(self, route: str, method: str, status: str, seconds: float) -> None:
        self._requests_of(route, method, status).inc()
        self._duration_of(route, method).observe(seconds)

    def rate_limited(self, error: RateLimited) -> None:
        self._refusals[error.scope, error.which].inc()


@dataclass(frozen=True, slots=True)
class Watch:
    """`access`: a line for each request. Without it lines about a request still name it. `tenants`: spans have the ids
    of workspace and project."""

    access: bool
    tracer: Tracer
    tenants: bool

    @classmethod
    def of(cls, logs: LogSettings, tracing: TracingSettings, tracer: Tracer) -> Watch | None:
        """None where nothing is written of a request."""
        if not logs.access and logs.format == "text" and tracing.endpoint is None:
            return None
        return cls(logs.access, tracer, tracing.tenants)

    def begin(self, scope: Scope) -> RequestRecord:
        parent = remote_parent(scope["headers"])
        span = self.tracer.request("request", parent)
        trace_id = span.trace_id or (parent.trace_id if parent is not None else None)
        record = RequestRecord(scope["state"]["request_id"], trace_id, span)
        name_lines(record.request_id, trace_id)
        return record

    def end(self, record: RequestRecord, method: str, route: str) -> None:
        is_traced = record.span.trace_id is not None
        if not self.access and not is_traced:
            return
        known = {"method": method, "route": route, **record.fields()}
        if is_traced:
            self._end_span(record, known)
        if self.access:
            known["total_s"] = round(perf_counter() - record.began, 6)
            logger.info("%s %s %s", method, route, record.status, extra={FIELDS: known})

    def _end_span(self, record: RequestRecord, known: Mapping[str, Any]) -> None:
        span = record.span
        span.rename(f"{known['method']} {known['route']}")
        span.set("pith.request_id", record.request_id)
        for name, attribute in ATTRIBUTES.items():
            if self.tenants or name not in TENANT:
                span.set(attribute, known.get(name))
        if known["ended"] == "failed":
            span.fail(record.error or "failed")
        span.end()


class RequestWatchMiddleware:
    """Begins and ends the record of each request. With a `watch` it is told of in the log, and traced."""

    def __init__(self, app: ASGIApp, metrics: HttpMetrics, watch: Watch | None = None) -> None:
        self._app = app
        self._metrics = metrics
        self._watch = watch

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = RequestRecord() if self._watch is None else self._watch.begin(scope)
        take_record(record)
        self._metrics.in_flight.inc()
        is_answered = True
        try:
            await self._app(scope, _receiving(record, receive), _sending(record, send))
        except ClientDisconnect:
            # The framework has answered, but the client had already left.
            record.client_left, is_answered = True, False
            raise
        except Exception as error:
            if record.error is None:
                record.fail(error)
            raise
        finally:
            self._metrics.in_flight.dec()
            self._end(scope, record, record.status if is_answered else None)

    def _end(self, scope: Scope, record: RequestRecord, status: int | None) -> None:
        """Method and route in words of which there are few: a path that a client makes up never becomes a label."""
        method = scope["method"] if scope["method"] in METHODS else "other"
        route = getattr(scope.get("route"), "path", UNMATCHED)
        if self._watch is not None:
            self._watch.end(record, method, route)
        seconds = perf_counter() - record.began
        self._metrics.end(route, method, NO_RESPONSE if status is None else str(status), seconds)


def _receiving(record: RequestRecord, receive: Receive) -> Receive:
    async def noted() -> Message:
        message = await receive()
        if message["type"] == "http.disconnect" and not record.is_whole:
            record.client_left = True
        return message

    return noted


def _sending(record: RequestRecord, send: Send) -> Send:
    async def noted(message: Message) -> None:
        if message["type"] == "http.response.start":
            record.status = message["status"]
        await send(message)
        if message["type"] != "http.response.start" and not message.get("more_body", False):
            record.is_whole = True

    return noted
