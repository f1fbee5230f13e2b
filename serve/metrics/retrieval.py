"""What is counted of embeddings and reranking, for each model: how requests ended, and what they had read."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram

from billing.price import Cost
from billing.usage import MeteringStatus
from models.engine import TokenUsage
from serve.metrics.histograms.buckets import SECONDS
from serve.metrics.money import MoneyMetrics
from serve.metrics.observed import ModelEnds, ObservedRequest


class RetrievalMetrics:
    """Of the models of kind `embedding` and `rerank`."""

    def __init__(self, registry: CollectorRegistry, model_ids: Iterable[str], money: MoneyMetrics) -> None:
        requests = Counter(
            "pith_retrieval_requests",
            "Embedding, rerank and score requests by how they ended.",
            ["model", "outcome"],
            registry=registry,
        )
        duration = Histogram(
            "pith_retrieval_request_duration_seconds",
            "Completed requests: from the hold to the settlement.",
            ["model"],
            registry=registry,
            buckets=SECONDS,
        )
        tokens = Counter(
            "pith_retrieval_input_tokens", "Tokens that models read.", ["model"], registry=registry
        )
        texts = Counter(
            "pith_retrieval_texts", "Texts that got a vector or a score.", ["model"], registry=registry
        )
        self._models = {
            model_id: _Model(requests, duration, money, model_id, tokens, texts) for model_id in model_ids
        }

    def begin(self, model_id: str, texts: int) -> ObservedRetrieval:
        return ObservedRetrieval(self._models[model_id], texts)


class ObservedRetrieval(ObservedRequest):
    """One request of so many texts."""

    def __init__(self, model: _Model, texts: int) -> None:
        super().__init__(model)
        self._model = model
        self._texts = texts

    def settle(self, usage: TokenUsage, cost: Cost, status: MeteringStatus) -> None:
        super().settle(usage, cost, status)
        self._model.tokens.inc(usage.prompt_tokens)
        self._model.texts.inc(self._texts)


class _Model(ModelEnds):
    def __init__(
        self,
        requests: Counter,
        duration: Histogram,
        money: MoneyMetrics,
        model_id: str,
        tokens: Counter,
        texts: Counter,
    ) -> None:
        super().__init__(requests, duration, money, model_id)
        self.tokens = tokens.labels(model_id)
        self.texts = texts.labels(model_id)
