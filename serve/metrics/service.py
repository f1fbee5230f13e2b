"""Metrics of one HTTP process: every HTTP request by route template, and the room of each kind of request."""

from collections.abc import Iterable
from functools import cache
from typing import get_args

from prometheus_client import CollectorRegistry

from billing.errors import LimitName, RateLimited
from serve.metrics.background import OriginalMetrics
from serve.metrics.charged_requests import (
    ChatMetrics,
    CompressMetrics,
    PromptCompressionMetrics,
    RetrievalMetrics,
)
from serve.metrics.families import Families

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


class ServiceMetrics:
    """`registry` is read in tests only: a server's process counts in its files (`serve.metrics.process_files`)."""

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        chat_models: Iterable[str],
        compression_models: Iterable[str],
        retrieval_models: Iterable[str] = (),
    ) -> None:
        chat_models, families = tuple(chat_models), Families(registry)
        self.http = HttpMetrics(families)
        self.chat = ChatMetrics(families, chat_models)
        self.compress = CompressMetrics(families, compression_models)
        self.prompt_compression = PromptCompressionMetrics(families, chat_models)
        self.retrieval = RetrievalMetrics(families, retrieval_models)
        self.originals = OriginalMetrics(registry)
