"""Metrics of charged requests, by model: how they ended, how long they took, their tokens and what they cost."""

from __future__ import annotations

from collections.abc import Iterable
from time import perf_counter
from typing import Literal, Self, get_args

from billing.errors import BillingDisabled, ClockBehind, InvalidKey, LedgerUnavailable, QuotaExceeded
from billing.price import Cost
from billing.usage import MeteringStatus, PromptCompression, Saving
from compression.flags import CODES
from compression.pipeline.compression_model import Receipt
from compression.pipeline.errors import CompressorOverloaded
from models.engine import TokenUsage
from serve.http.errors import STATUSES, problem_of
from serve.metrics.background import OriginalMetrics, PreservationMetrics
from serve.metrics.counts import Counts, Families
from serve.metrics.families import NANO_PER_USD
from serve.metrics.request_watch import HttpMetrics
from serve.tracing.request_record import ChargedWork

# A usage event that is in neither the ledger nor the spool; every other status is the response's own.
LOST = "lost"
HOLD_REFUSALS = (QuotaExceeded, BillingDisabled, InvalidKey, LedgerUnavailable, ClockBehind)
# The few words for how a model's request ended: what a dashboard groups by.
Outcome = Literal["completed", "refused", "overloaded", "unavailable", "failed", "cancelled"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
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


def outcome_of(error: BaseException) -> Outcome:
    """`refused`: the caller can put it right; `cancelled`: the client left; the others are the server's."""
    if not isinstance(error, Exception):
        return "cancelled"
    if isinstance(error, CompressorOverloaded):
        return "overloaded"
    try:
        status = problem_of(error).status
    except KeyError:
        return "failed"
    if status < 500:
        return "refused"
    return "unavailable" if status == 503 else "failed"


class ModelSeries:
    """One model's series of one kind of request, its money included; all are there from the start, at 0."""

    def __init__(self, families: Families, kind: str, model_id: str) -> None:
        self.outcomes = families.counters(f"pith_{kind}_requests", model_id, last=OUTCOMES)
        self.duration = families.histogram(f"pith_{kind}_request_duration_seconds", model_id)
        statuses: Iterable[str] = (*get_args(MeteringStatus), LOST)
        self.settled = families.counters("pith_metering", model_id, last=statuses)
        self.charged = families.counter("pith_charged_usd", model_id)
        reasons = [STATUSES[kind].code for kind in HOLD_REFUSALS]
        self.refused = families.counters("pith_holds_refused", model_id, last=reasons)


class ObservedRequest(ChargedWork):
    """One request that has begun. Its failure and its end are reported on every way out: `with` does both."""

    def __init__(self, series: ModelSeries) -> None:
        self.began = perf_counter()
        self._series = series
        self._outcome: Outcome = "completed"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self.fail(error)
        self.end()

    def settle(self, usage: TokenUsage, cost: Cost, status: MeteringStatus) -> None:
        super().settle(usage, cost, status)
        self._series.settled[status].inc()
        if status != "not_applicable":
            self._series.charged.inc(cost.nano_usd / NANO_PER_USD)

    def lose(self) -> None:
        self._series.settled[LOST].inc()

    def fail(self, error: BaseException) -> None:
        super().fail(error)
        self._outcome = outcome_of(error)
        if isinstance(error, HOLD_REFUSALS):
            self._series.refused[problem_of(error).code].inc()

    def end(self) -> None:
        self._series.outcomes[self._outcome].inc()
        if self._outcome == "completed":
            self._series.duration.observe(perf_counter() - self.began)


class _ChatSeries(ModelSeries):
    def __init__(self, families: Families, model_id: str) -> None:
        super().__init__(families, "chat", model_id)
        self.prompt = families.counter("pith_chat_prompt_tokens", model_id)
        self.completion = families.counter("pith_chat_completion_tokens", model_id)
        self.cached = families.counter("pith_chat_cached_tokens", model_id)
        self.exceeded = families.counter("pith_chat_bound_exceeded", model_id)
        self.in_flight = families.gauge("pith_chat_requests_in_flight", model_id)
        self.first_token = families.histogram("pith_chat_time_to_first_token_seconds", model_id)
        self.between_tokens = families.histogram("pith_chat_inter_token_seconds", model_id)


class ChatMetrics:
    """Begin an observation for each request that the project's limits let in."""

    def __init__(self, families: Families, model_ids: Iterable[str]) -> None:
        self._models = {model_id: _ChatSeries(families, model_id) for model_id in model_ids}

    def begin(self, model_id: str) -> ObservedChat:
        return ObservedChat(self._models[model_id])


class ObservedChat(ObservedRequest):
    """One admitted request."""

    def __init__(self, model: _ChatSeries) -> None:
        super().__init__(model)
        self._model = model
        # The last event of a stream: when it left, and how many tokens had been generated by then.
        self._sent_at = 0.0
        self._sent_tokens = 0
        model.in_flight.inc()

    def deliver(self, completion_tokens: int) -> None:
        """The first event of a stream is about to leave, with so many tokens."""
        self._sent_at, self._sent_tokens = perf_counter(), completion_tokens
        self._model.first_token.observe(self._sent_at - self.began)

    def go_on(self, completion_tokens: int) -> None:
        """A later one is: so many tokens have been generated by now. Those that leave together share their wait."""
        new = completion_tokens - self._sent_tokens
        if new > 0:
            now = perf_counter()
            self._model.between_tokens.observe((now - self._sent_at) / new, new)
            self._sent_at, self._sent_tokens = now, completion_tokens

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


class _CompressionSeries(ModelSeries):
    def __init__(self, families: Families, model_id: str) -> None:
        super().__init__(families, "compress", model_id)
        self.original = families.counter("pith_compress_original_tokens", model_id)
        self.output = families.counter("pith_compress_output_tokens", model_id)
        self.flags = families.counters("pith_compress_risk_flags", model_id, last=CODES)
        self.ratio = families.histogram("pith_compress_ratio", model_id)


class CompressMetrics:
    """Every compression is observed by itself, including those of a batch and of the demo."""

    def __init__(self, families: Families, model_ids: Iterable[str]) -> None:
        self._models = {model_id: _CompressionSeries(families, model_id) for model_id in model_ids}

    def begin(self, model_id: str) -> ObservedCompression:
        return ObservedCompression(self._models[model_id])


class ObservedCompression(ObservedRequest):
    """One compression that was asked for."""

    def __init__(self, model: _CompressionSeries) -> None:
        super().__init__(model)
        self._model = model

    def compressed(self, receipt: Receipt) -> None:
        self._model.original.inc(receipt.original_tokens)
        self._model.output.inc(receipt.output_tokens)
        self._model.ratio.observe(receipt.compression_ratio)
        for flag in receipt.risk_flags:
            self._model.flags[flag.code].inc()


class _RetrievalSeries(ModelSeries):
    def __init__(self, families: Families, model_id: str) -> None:
        super().__init__(families, "retrieval", model_id)
        self.tokens = families.counter("pith_retrieval_input_tokens", model_id)
        self.texts = families.counter("pith_retrieval_texts", model_id)


class RetrievalMetrics:
    """Embeddings, reranking and scores."""

    def __init__(self, families: Families, model_ids: Iterable[str]) -> None:
        self._models = {model_id: _RetrievalSeries(families, model_id) for model_id in model_ids}

    def begin(self, model_id: str, texts: int) -> ObservedRetrieval:
        return ObservedRetrieval(self._models[model_id], texts)


class ObservedRetrieval(ObservedRequest):
    """One request of so many texts."""

    def __init__(self, model: _RetrievalSeries, texts: int) -> None:
        super().__init__(model)
        self._model = model
        self._texts = texts

    def settle(self, usage: TokenUsage, cost: Cost, status: MeteringStatus) -> None:
        super().settle(usage, cost, status)
        self._model.tokens.inc(usage.prompt_tokens)
        self._model.texts.inc(self._texts)


class _PromptSeries:
    def __init__(self, families: Families, model_id: str) -> None:
        statuses, ends = get_args(PromptCompression), get_args(BlockEnd)
        self.requests = families.counters("pith_prompt_compression_requests", model_id, last=statuses)
        self.blocks = families.counters("pith_prompt_compression_blocks", model_id, last=ends)
        self.original = families.counter("pith_prompt_compression_original_tokens", model_id)
        self.sent = families.counter("pith_prompt_compression_sent_tokens", model_id)
        self.saved = families.counter("pith_prompt_compression_tokens_saved", model_id)
        self.saved_usd = families.counter("pith_prompt_compression_saved_usd", model_id)
        self.cost_usd = families.counter("pith_prompt_compression_cost_usd", model_id)
        self.seconds = families.histogram("pith_prompt_compression_seconds", model_id)


class PromptCompressionMetrics:
    """Begin an observation for each chat for which compression was asked."""

    def __init__(self, families: Families, model_ids: Iterable[str]) -> None:
        self._models = {model_id: _PromptSeries(families, model_id) for model_id in model_ids}

    def begin(self, model_id: str) -> ObservedPrompt:
        return ObservedPrompt(self._models[model_id])


class ObservedPrompt:
    """One prompt, from now on."""

    def __init__(self, model: _PromptSeries) -> None:
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


class ServiceMetrics:
    """Metrics of requests of every kind."""

    def __init__(
        self,
        counts: Counts,
        *,
        chat_models: Iterable[str],
        compression_models: Iterable[str],
        retrieval_models: Iterable[str] = (),
    ) -> None:
        chat_models, families = tuple(chat_models), Families(counts)
        self.http = HttpMetrics(families)
        self.chat = ChatMetrics(families, chat_models)
        self.compress = CompressMetrics(families, compression_models)
        self.prompt_compression = PromptCompressionMetrics(families, chat_models)
        self.retrieval = RetrievalMetrics(families, retrieval_models)
        self.originals = OriginalMetrics(counts)
        self.preservation = PreservationMetrics(counts, chat_models)
