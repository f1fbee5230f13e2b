"""What is counted of compressions, for each model: how they ended, what they saved, and which risks they flagged."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram

from compression.flags import CODES
from compression.pipeline.receipt import Receipt
from serve.metrics.histograms.buckets import RATIOS, SECONDS
from serve.metrics.money import MoneyMetrics
from serve.metrics.observed import ModelEnds, ObservedRequest


class CompressMetrics:
    """Every compression is observed by itself, including those of a batch and of the demo."""

    def __init__(self, registry: CollectorRegistry, model_ids: Iterable[str], money: MoneyMetrics) -> None:
        families = _Families(registry)
        self._models = {model_id: _Model(families, model_id, money) for model_id in model_ids}

    def begin(self, model_id: str) -> ObservedCompression:
        return ObservedCompression(self._models[model_id])


class ObservedCompression(ObservedRequest):
    """One compression that was asked for."""

    def __init__(self, model: _Model) -> None:
        super().__init__(model)
        self._model = model

    def compressed(self, receipt: Receipt) -> None:
        self._model.original.inc(receipt.original_tokens)
        self._model.output.inc(receipt.output_tokens)
        self._model.ratio.observe(receipt.compression_ratio)
        for flag in receipt.risk_flags:
            self._model.flags[flag.code].inc()


class _Families:
    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, ["model", *labels], registry=registry)

        self.requests = counter("pith_compress_requests", "Compressions by how they ended.", "outcome")
        self.original = counter("pith_compress_original_tokens", "Tokens before compression.")
        self.output = counter("pith_compress_output_tokens", "Tokens after compression.")
        self.flags = counter("pith_compress_risk_flags", "Compressions whose receipt has this flag.", "code")
        self.ratio = Histogram(
            "pith_compress_ratio",
            "Output tokens divided by original tokens.",
            ["model"],
            registry=registry,
            buckets=RATIOS,
        )
        self.duration = Histogram(
            "pith_compress_request_duration_seconds",
            "Completed compressions: from the hold to the settlement.",
            ["model"],
            registry=registry,
            buckets=SECONDS,
        )


class _Model(ModelEnds):
    def __init__(self, families: _Families, model_id: str, money: MoneyMetrics) -> None:
        super().__init__(families.requests, families.duration, money, model_id)
        self.original = families.original.labels(model_id)
        self.output = families.output.labels(model_id)
        self.flags = {code: families.flags.labels(model_id, code) for code in CODES}
        self.ratio = families.ratio.labels(model_id)
