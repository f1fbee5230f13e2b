"""What is counted of every HTTP request, by route template: a path that a client makes up never becomes a label."""

from functools import cache
from time import perf_counter
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from billing.errors import LimitName, RateLimited
from serve.metrics.histograms.buckets import SECONDS

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
UNMATCHED = "unmatched"
NO_RESPONSE = "none"


class HttpMetrics:
    """The counters of this process's HTTP server."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "pith_http_requests",
            "HTTP requests that ended; status none: the client left before the response began.",
            ["route", "method", "status"],
            registry=registry,
        )
        self.duration = Histogram(
            "pith_http_request_duration_seconds",
            "HTTP requests: from the first byte read to the last byte sent, of a stream too.",
            ["route", "method"],
            registry=registry,
            buckets=SECONDS,
        )
        self.in_flight = Gauge(
            "pith_http_requests_in_flight",
            "HTTP requests that are being answered.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.replicas = Gauge(
            "pith_ingress_replicas",
            "HTTP processes that are running.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.replicas.set(1)
        # Looked up once for each set of labels: the templates of routes and a few methods and statuses.
        self._requests_of = cache(self.requests.labels)
        self._duration_of = cache(self.duration.labels)
        self._refusals = _refusals(registry)

    def end(self, route: str, method: str, status: str, seconds: float) -> None:
        self._requests_of(route, method, status).inc()
        self._duration_of(route, method).observe(seconds)

    def rate_limited(self, error: RateLimited) -> None:
        self._refusals[error.scope, error.which].inc()


def _refusals(registry: CollectorRegistry) -> dict[tuple[str, str], Counter]:
    family = Counter(
        "pith_rate_limit_refusals",
        "Requests refused with 429, by scope and kind of limit.",
        ["scope", "limit"],
        registry=registry,
    )
    limits = [(scope, name) for scope in ("project", "key") for name in get_args(LimitName)]
    limits += [("demo", name) for name in ("requests", "in_flight")]
    return {labels: family.labels(*labels) for labels in limits}


class MetricsMiddleware:
    """Counts each request once it is over."""

    def __init__(self, app: ASGIApp, metrics: HttpMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = NO_RESPONSE

        async def send_noting_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        metrics, began = self._metrics, perf_counter()
        metrics.in_flight.inc()
        try:
            await self._app(scope, receive, send_noting_status)
        except ClientDisconnect:
            # The framework has answered, but the client had already left.
            status = NO_RESPONSE
            raise
        finally:
            metrics.in_flight.dec()
            route = getattr(scope.get("route"), "path", UNMATCHED)
            method = scope["method"] if scope["method"] in METHODS else "other"
            metrics.end(route, method, status, perf_counter() - began)
