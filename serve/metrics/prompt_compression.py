"""Metrics of compression inside chat, by chat model: outcomes of blocks, and savings."""

from __future__ import annotations

from collections.abc import Iterable
from time import perf_counter
from typing import Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Histogram

from billing.usage import MeteringStatus, PromptCompression, Saving
from models.engine import TokenUsage
from serve.metrics.histograms.buckets import SECONDS
from serve.metrics.money import NANO_PER_USD

# Why a block was sent whole.
Reason = Literal[
    "below_min_tokens",
    "nothing_saved",
    "not_worth",
    "too_large",
    "not_text",
    "json_would_break",
    "holdout",
    "quota_exceeded",
    "failed",
    "timed_out",
]
# The outcome of a block: compressed for this request or for an earlier one, or sent whole.
BlockEnd = Literal["compressed", "cached", Reason]
BLOCK_ENDS: tuple[BlockEnd, ...] = get_args(BlockEnd)
STATUSES: tuple[PromptCompression, ...] = get_args(PromptCompression)


class PromptCompressionMetrics:
    """Begin an observation for each chat for which compression was asked. All series of a model are there from the
    start, at 0."""

    def __init__(self, registry: CollectorRegistry, model_ids: Iterable[str]) -> None:
        families = _Families(registry)
        self._models = {model_id: _Model(families, model_id) for model_id in model_ids}

    def begin(self, model_id: str) -> ObservedPrompt:
        return ObservedPrompt(self._models[model_id])


class ObservedPrompt:
    """One prompt, from now on."""

    def __init__(self, model: _Model) -> None:
        self._model = model
        self._began = perf_counter()

    def block(self, end: BlockEnd) -> None:
        self._model.blocks[end].inc()

    def compressed(self) -> None:
        """Its blocks are done: the chat can go on."""
        self._model.seconds.observe(perf_counter() - self._began)

    def settle(self, saving: Saving, usage: TokenUsage, status: MeteringStatus) -> None:
        """The chat was settled. Dollars are counted of metered projects alone, as what they are charged."""
        model = self._model
        model.requests[saving.status].inc()
        model.original.inc(saving.original_tokens)
        model.sent.inc(usage.prompt_tokens)
        # A counter cannot fall: marks of gaps can make a prompt longer than it was.
        model.saved.inc(max(0, saving.original_tokens - usage.prompt_tokens))
        if status != "not_applicable":
            model.saved_usd.inc(max(0, saving.saved_nano_usd) / NANO_PER_USD)
            model.cost_usd.inc(saving.compression_nano_usd / NANO_PER_USD)


class _Families:
    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"pith_prompt_compression_{name}", text, ["model", *labels], registry=registry)

        self.requests = counter("requests", "Settled chats for which compression was asked.", "status")
        self.blocks = counter("blocks", "Blocks of prompts, by what became of them.", "outcome")
        self.original = counter("original_tokens", "Tokens of these chats' prompts before compression.")
        self.sent = counter("sent_tokens", "Tokens of these chats' prompts as the engine counted them.")
        self.saved = counter("tokens_saved", "Prompt tokens that were not sent.")
        self.saved_usd = counter(
            "saved_usd", "US dollars that these chats would have cost more, before what compression cost."
        )
        self.cost_usd = counter("cost_usd", "US dollars charged for compressing these chats' prompts.")
        self.seconds = Histogram(
            "pith_prompt_compression_seconds",
            "Prompts whose blocks were looked at: from admission to the compressed prompt.",
            ["model"],
            registry=registry,
            buckets=SECONDS,
        )


class _Model:
    def __init__(self, families: _Families, model_id: str) -> None:
        self.requests = {status: families.requests.labels(model_id, status) for status in STATUSES}
        self.blocks = {end: families.blocks.labels(model_id, end) for end in BLOCK_ENDS}
        self.original = families.original.labels(model_id)
        self.sent = families.sent.labels(model_id)
        self.saved = families.saved.labels(model_id)
        self.saved_usd = families.saved_usd.labels(model_id)
        self.cost_usd = families.cost_usd.labels(model_id)
        self.seconds = families.seconds.labels(model_id)
