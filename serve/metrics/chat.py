"""What is counted of chat requests, for each model: a few additions when one ends, none for a token."""

from __future__ import annotations

from collections.abc import Iterable
from time import perf_counter

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from billing.price import Cost
from billing.usage import MeteringStatus
from models.engine import TokenUsage
from serve.metrics.buckets import FIRST_TOKEN_SECONDS, SECONDS
from serve.metrics.money import MoneyMetrics
from serve.metrics.observed import ModelEnds, ObservedRequest


class ChatMetrics:
    """Begin an observation for each request that the project's limits let in."""

    def __init__(self, registry: CollectorRegistry, model_ids: Iterable[str], money: MoneyMetrics) -> None:
        families = _Families(registry)
        self._models = {model_id: _Model(families, model_id, money) for model_id in model_ids}

    def begin(self, model_id: str) -> ObservedChat:
        return ObservedChat(self._models[model_id])


class ObservedChat(ObservedRequest):
    """One admitted request."""

    def __init__(self, model: _Model) -> None:
        super().__init__(model)
        self._model = model
        model.in_flight.inc()

    def deliver(self) -> None:
        """The first event of a stream is about to leave."""
        self._model.first_token.observe(perf_counter() - self.began)

    def settle(self, usage: TokenUsage, cost: Cost, status: MeteringStatus) -> None:
        self._model.prompt.inc(usage.prompt_tokens)
        self._model.completion.inc(usage.completion_tokens)
        self._model.cached.inc(usage.cached_tokens)
        super().settle(usage, cost, status)

    def exceed(self) -> None:
        """The engine counted more tokens than were held for it."""
        self._model.exceeded.inc()

    def end(self) -> None:
        self._model.in_flight.dec()
        super().end()


class _Families:
    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, ["model", *labels], registry=registry)

        self.requests = counter("pith_chat_requests", "Chat requests by how they ended.", "outcome")
        self.prompt = counter("pith_chat_prompt_tokens", "Prompt tokens of settled requests.")
        self.completion = counter("pith_chat_completion_tokens", "Completion tokens of settled requests.")
        self.cached = counter("pith_chat_cached_tokens", "Prompt tokens found in the engine's prefix cache.")
        self.exceeded = counter(
            "pith_chat_bound_exceeded",
            "Requests that failed since the engine counted more tokens than were held for it.",
        )
        self.in_flight = Gauge(
            "pith_chat_requests_in_flight",
            "Chat requests that are being worked on.",
            ["model"],
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.first_token = Histogram(
            "pith_chat_time_to_first_token_seconds",
            "Streamed requests: from admission to the first event.",
            ["model"],
            registry=registry,
            buckets=FIRST_TOKEN_SECONDS,
        )
        self.duration = Histogram(
            "pith_chat_request_duration_seconds",
            "Completed requests: from admission to settlement.",
            ["model"],
            registry=registry,
            buckets=SECONDS,
        )


class _Model(ModelEnds):
    def __init__(self, families: _Families, model_id: str, money: MoneyMetrics) -> None:
        super().__init__(families.requests, families.duration, money, model_id)
        self.prompt = families.prompt.labels(model_id)
        self.completion = families.completion.labels(model_id)
        self.cached = families.cached.labels(model_id)
        self.exceeded = families.exceeded.labels(model_id)
        self.in_flight = families.in_flight.labels(model_id)
        self.first_token = families.first_token.labels(model_id)
