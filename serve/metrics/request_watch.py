"""Watch over every request: its count, and where these are asked for its line in the log and its span."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cache
from time import perf_counter
from typing import Any, get_args

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from billing.errors import LimitName, RateLimited
from serve.config.server_settings import LogSettings, TracingSettings
from serve.logs.lines import FIELDS, RequestNotes, take_notes
from serve.logs.outlet import ACCESS
from serve.metrics.families import Families
from serve.tracing.spans import Span, Tracer, remote_parent, take_span

logger = logging.getLogger(ACCESS)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
UNMATCHED = "unmatched"
NO_RESPONSE = "none"
# Of a request that had work done by a model.
WORK = (
    *("model", "stream", "prompt_tokens", "completion_tokens", "cached_tokens"),
    *("cost_nano_usd", "metering"),
)
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
    *((scope, name) for scope in ("project", "key") for name in get_args(LimitName)),
    *(("demo", name) for name in ("requests", "in_flight")),
)


class HttpMetrics:
    """The counters of this process's HTTP server."""

    def __init__(self, families: Families) -> None:
        # Looked up once for each set of labels: the templates of routes and a few methods and statuses.
        self._requests_of = cache(families.counter("pith_http_requests").labels)
        self._duration_of = cache(families.histogram("pith_http_request_duration_seconds").labels)
        self.in_flight = families.gauge("pith_http_requests_in_flight")
        families.gauge("pith_ingress_replicas").set(1)
        refusals = families.counter("pith_rate_limit_refusals")
        self._refusals = {labels: refusals.labels(*labels) for labels in LIMITS}

    def end(self, route: str, method: str, status: str, seconds: float) -> None:
        self._requests_of(route, method, status).inc()
        self._duration_of(route, method).observe(seconds)

    def rate_limited(self, error: RateLimited) -> None:
        self._refusals[error.scope, error.which].inc()


@dataclass(frozen=True, slots=True)
class Watch:
    """`access`: a line for each request. Without it the notes still name the request in lines about it. `tenants`:
    spans have the ids of workspace and project."""

    access: bool
    tracer: Tracer
    tenants: bool

    @classmethod
    def of(cls, logs: LogSettings, tracing: TracingSettings, tracer: Tracer) -> Watch | None:
        """None where nothing is written of a request."""
        if not logs.access and logs.format == "text" and tracing.endpoint is None:
            return None
        return cls(logs.access, tracer, tracing.tenants)


@dataclass(slots=True)
class _Sent:
    """The part of the reply that has left."""

    status: int | None = None
    is_whole: bool = False


class RequestWatchMiddleware:
    """Counts each request once it is over; with a `watch` it is told of in the log, and traced."""

    def __init__(self, app: ASGIApp, metrics: HttpMetrics, watch: Watch | None = None) -> None:
        self._app = app
        self._metrics = metrics
        self._watch = watch

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sent, began = _Sent(), perf_counter()

        async def send_noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                sent.status = message["status"]
            await send(message)
            if message["type"] != "http.response.start" and not message.get("more_body", False):
                sent.is_whole = True

        self._metrics.in_flight.inc()
        try:
            if self._watch is None:
                await self._app(scope, receive, send_noting)
            else:
                await _Watched(self._watch, scope, sent).run(self._app, receive, send_noting)
        except ClientDisconnect:
            # The framework has answered, but the client had already left.
            sent.status = None
            raise
        finally:
            self._metrics.in_flight.dec()
            status = NO_RESPONSE if sent.status is None else str(sent.status)
            self._metrics.end(_route(scope), _method(scope), status, perf_counter() - began)


class _Watched:
    """One request of which something is written."""

    def __init__(self, watch: Watch, scope: Scope, sent: _Sent) -> None:
        self._watch = watch
        self._scope = scope
        self._sent = sent
        parent = remote_parent(scope["headers"])
        self._span = watch.tracer.request("request", parent)
        take_span(self._span)
        trace_id = self._span.trace_id or (parent.trace_id if parent is not None else None)
        self._notes = RequestNotes(scope["state"]["request_id"], trace_id)
        take_notes(self._notes)

    async def run(self, app: ASGIApp, receive: Receive, send: Send) -> None:
        notes = self._notes

        async def receive_noting() -> Message:
            message = await receive()
            if message["type"] == "http.disconnect" and not self._sent.is_whole:
                notes.client_left = True
            return message

        try:
            await app(self._scope, receive_noting, send)
        except ClientDisconnect:
            notes.client_left = True
            raise
        except Exception as error:
            notes.error = notes.error or type(error).__name__
            raise
        finally:
            if self._watch.access or self._span.trace_id is not None:
                self._tell(_known(self._scope, notes, self._sent))

    def _tell(self, known: dict[str, Any]) -> None:
        if self._span.trace_id is not None:
            self._end(self._span, known)
        if self._watch.access:
            known["total_s"] = round(perf_counter() - self._notes.began, 6)
            line = (known["method"], known["route"], known["status"])
            logger.info("%s %s %s", *line, extra={FIELDS: known})

    def _end(self, span: Span, known: dict[str, Any]) -> None:
        span.rename(f"{known['method']} {known['route']}")
        span.set("pith.request_id", self._notes.request_id)
        for name, attribute in ATTRIBUTES.items():
            if self._watch.tenants or name not in TENANT:
                span.set(attribute, known.get(name))
        if known["ended"] == "failed":
            span.fail(known["error"] or "failed")
        span.end()


def _known(scope: Scope, notes: RequestNotes, sent: _Sent) -> dict[str, Any]:
    """All that is known of a request, in the order of its line; method and route in words of which there are few."""
    known = {
        "method": _method(scope),
        "route": _route(scope),
        "status": sent.status,
        "ended": ended(notes, sent.status, is_whole=sent.is_whole),
        **{name: getattr(notes, name) for name in ("error", "workspace_id", "project_id", "key_id")},
    }
    if notes.model is not None:
        known |= {name: getattr(notes, name) for name in WORK}
        known |= {name: _rounded(getattr(notes, name)) for name in ("queue_s", "first_token_s")}
    return known


def _method(scope: Scope) -> str:
    return scope["method"] if scope["method"] in METHODS else "other"


def _route(scope: Scope) -> str:
    """Its template: a path that a client makes up never becomes a label."""
    return getattr(scope.get("route"), "path", UNMATCHED)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)


def ended(notes: RequestNotes, status: int | None, *, is_whole: bool) -> str:
    """The end of a request: `complete` for a refusal too, which is a whole reply; `failed` where the reply broke off by
    our fault, an error event included."""
    if notes.client_left and not is_whole:
        return "client_left"
    is_our_fault = status is None or status >= 500 or (status < 400 and notes.error is not None)
    return "failed" if not is_whole or is_our_fault else "complete"
