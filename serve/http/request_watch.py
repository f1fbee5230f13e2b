"""Watch over every request: its line in the log and its span, once its reply has been sent or its client has left."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.config.observability import LogSettings, TracingSettings
from serve.logs.lines import FIELDS
from serve.logs.outlet import ACCESS
from serve.logs.request_notes import RequestNotes, take_notes
from serve.tracing.spans import NO_TRACER, Span, Tracer, remote_parent, take_span

logger = logging.getLogger(ACCESS)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
UNMATCHED = "unmatched"
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


@dataclass(slots=True)
class _Sent:
    """The part of the reply that has left."""

    status: int | None = None
    is_whole: bool = False


class RequestWatchMiddleware:
    """`access`: a line for each request. Without it the notes still name the request in lines about it. `tenants`:
    spans have the ids of workspace and project."""

    def __init__(
        self, app: ASGIApp, *, access: bool, tracer: Tracer = NO_TRACER, tenants: bool = False
    ) -> None:
        self._app = app
        self._access = access
        self._tracer = tracer
        self._tenants = tenants

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        parent = remote_parent(scope["headers"])
        span = self._tracer.request("request", parent)
        take_span(span)
        trace_id = span.trace_id or (parent.trace_id if parent is not None else None)
        notes, sent = RequestNotes(scope["state"]["request_id"], trace_id), _Sent()
        take_notes(notes)

        async def send_noting(message: Message) -> None:
            await send(message)
            if message["type"] == "http.response.start":
                sent.status = message["status"]
            elif not message.get("more_body", False):
                sent.is_whole = True

        async def receive_noting() -> Message:
            message = await receive()
            if message["type"] == "http.disconnect" and not sent.is_whole:
                notes.client_left = True
            return message

        try:
            await self._app(scope, receive_noting, send_noting)
        except ClientDisconnect:
            notes.client_left = True
            raise
        except Exception as error:
            notes.error = notes.error or type(error).__name__
            raise
        finally:
            if self._access or span.trace_id is not None:
                self._tell(span, _known(scope, notes, sent), notes)

    def _tell(self, span: Span, known: dict[str, Any], notes: RequestNotes) -> None:
        if span.trace_id is not None:
            self._end(span, known, notes.request_id)
        if self._access:
            known["total_s"] = round(perf_counter() - notes.began, 6)
            line = (known["method"], known["route"], known["status"])
            logger.info("%s %s %s", *line, extra={FIELDS: known})

    def _end(self, span: Span, known: Mapping[str, Any], request_id: str) -> None:
        span.rename(f"{known['method']} {known['route']}")
        span.set("pith.request_id", request_id)
        for name, attribute in ATTRIBUTES.items():
            if self._tenants or name not in TENANT:
                span.set(attribute, known.get(name))
        if known["ended"] == "failed":
            span.fail(known["error"] or "failed")
        span.end()


def watch_of(
    logs: LogSettings, tracing: TracingSettings, tracer: Tracer
) -> Callable[[ASGIApp], ASGIApp] | None:
    """The middleware around every request; None where nothing is written of it."""
    if not logs.access and logs.format == "text" and tracing.endpoint is None:
        return None
    return partial(RequestWatchMiddleware, access=logs.access, tracer=tracer, tenants=tracing.tenants)


def _known(scope: Scope, notes: RequestNotes, sent: _Sent) -> dict[str, Any]:
    """All that is known of a request, in the order of its line; method and route in words of which there are few."""
    known = {
        "method": scope["method"] if scope["method"] in METHODS else "other",
        "route": getattr(scope.get("route"), "path", UNMATCHED),
        "status": sent.status,
        "ended": ended(notes, sent.status, is_whole=sent.is_whole),
        **{name: getattr(notes, name) for name in ("error", "workspace_id", "project_id", "key_id")},
    }
    if notes.model is not None:
        known |= {name: getattr(notes, name) for name in WORK}
        known |= {name: _rounded(getattr(notes, name)) for name in ("queue_s", "first_token_s")}
    return known


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)


def ended(notes: RequestNotes, status: int | None, *, is_whole: bool) -> str:
    """The end of a request: `complete` for a refusal too, which is a whole reply; `failed` where the reply broke off by
    our fault, an error event included."""
    if notes.client_left and not is_whole:
        return "client_left"
    is_our_fault = status is None or status >= 500 or (status < 400 and notes.error is not None)
    return "failed" if not is_whole or is_our_fault else "complete"
