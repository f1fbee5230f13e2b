"""Stands around every route: notes what becomes known of a request, writes its line and ends its span when its reply
has been sent or its client has left."""

from __future__ import annotations

import logging
from collections.abc import Callable
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


@dataclass(slots=True)
class _Sent:
    """What left of the reply."""

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
            asked = _Asked.of(scope)
            how = ended(notes, sent.status, is_whole=sent.is_whole)
            _end(span, asked, notes, sent.status, how, tenants=self._tenants)
            if self._access:
                _write(asked, notes, sent.status, how)


def watch_of(
    logs: LogSettings, tracing: TracingSettings, tracer: Tracer
) -> Callable[[ASGIApp], ASGIApp] | None:
    """What is to stand around every request; None where nothing is written of it."""
    if not logs.access and logs.format == "text" and tracing.endpoint is None:
        return None
    return partial(RequestWatchMiddleware, access=logs.access, tracer=tracer, tenants=tracing.tenants)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What was asked for, in words of which there are few."""

    method: str
    route: str

    @classmethod
    def of(cls, scope: Scope) -> _Asked:
        method = scope["method"] if scope["method"] in METHODS else "other"
        return cls(method, getattr(scope.get("route"), "path", UNMATCHED))


def _end(
    span: Span, asked: _Asked, notes: RequestNotes, status: int | None, how: str, *, tenants: bool
) -> None:
    if span.trace_id is None:
        return
    span.rename(f"{asked.method} {asked.route}")
    span.set("http.request.method", asked.method)
    span.set("http.route", asked.route)
    span.set("http.response.status_code", status)
    span.set("pith.request_id", notes.request_id)
    span.set("pith.ended", how)
    if notes.model is not None:
        span.set("gen_ai.request.model", notes.model)
        span.set("pith.stream", notes.stream)
        span.set("gen_ai.usage.input_tokens", notes.prompt_tokens)
        span.set("gen_ai.usage.output_tokens", notes.completion_tokens)
        span.set("pith.metering", notes.metering)
    if tenants:
        span.set("pith.workspace_id", notes.workspace_id)
        span.set("pith.project_id", notes.project_id)
    if how == "failed":
        span.fail(notes.error or "failed")
    span.end()


def _write(asked: _Asked, notes: RequestNotes, status: int | None, how: str) -> None:
    fields: dict[str, Any] = {
        "method": asked.method,
        "route": asked.route,
        "status": status,
        "ended": how,
        "error": notes.error,
        "workspace_id": notes.workspace_id,
        "project_id": notes.project_id,
        "key_id": notes.key_id,
    }
    if notes.model is not None:
        fields |= _work(notes)
    fields["total_s"] = round(perf_counter() - notes.began, 6)
    logger.info("%s %s %s", asked.method, asked.route, status, extra={FIELDS: fields})


def _work(notes: RequestNotes) -> dict[str, Any]:
    return {
        "model": notes.model,
        "stream": notes.stream,
        "prompt_tokens": notes.prompt_tokens,
        "completion_tokens": notes.completion_tokens,
        "cached_tokens": notes.cached_tokens,
        "cost_nano_usd": notes.cost_nano_usd,
        "metering": notes.metering,
        "queue_s": _rounded(notes.queue_s),
        "first_token_s": _rounded(notes.first_token_s),
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)


def ended(notes: RequestNotes, status: int | None, *, is_whole: bool) -> str:
    """How a request ended: `complete` for a refusal too, which is a whole reply; `failed` where the reply broke off by
    our fault, an error event included."""
    if notes.client_left and not is_whole:
        return "client_left"
    is_our_fault = status is None or status >= 500 or (status < 400 and notes.error is not None)
    return "failed" if not is_whole or is_our_fault else "complete"
