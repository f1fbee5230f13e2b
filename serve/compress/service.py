"""A compression from checked body to settled cost: prepare, admit, hold, compress, settle or release."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

import orjson

from billing.caller import Caller, LimitState
from billing.errors import UsageNotRecorded
from billing.ledger.ledger import Ledger
from billing.price import ModelPrice
from billing.rate_limits.rate_limits import RateLimits
from billing.usage import Hold, MeteringStatus, UsageFigures
from compression.pipeline.errors import (
    CompressionError,
    InputTooLarge,
    RefusedRequest,
    UnknownCompressionModel,
)
from compression.pipeline.request import CompressionRequest, CompressionResult
from compression.pipeline.served import NO_TERMS, CompressionModel, JobTerms
from serve.compress.charge import check_paid_for, cost_of
from serve.compress.kept import KeptFields, kept_fields, kept_of_messages
from serve.compress.options import request_of, wants_spans
from serve.compress.receipt_json import receipt_fields
from serve.compress.request import Asked, CompressInput
from serve.http.fresh_id import fresh_id
from serve.metrics.compress import CompressMetrics, ObservedCompression
from serve.money.hold import HoldTerms, hold_worst_case
from serve.money.price_book import PriceBook, price_of
from serve.money.terms import MostTokens, TokenTerms

logger = logging.getLogger("pith.compress")


class CountingModel(CompressionModel, Protocol):
    """A compression model that can say beforehand how many tokens its receipt will count in an input."""

    async def count_tokens(self, text: str, terms: JobTerms = NO_TERMS) -> int:
        """Raises what `compress` does, but for a `CompressionError`."""
        ...


@dataclass(frozen=True, slots=True)
class ServedCompressor:
    """A compression model with what a request may leave out, the input in bytes that it takes, and the most tokens that
    a byte can come to in its receipts; None where that is not proven. `keeps_json`: what it leaves of JSON is JSON."""

    model: CountingModel
    default_ratio: float
    longest_input_bytes: int
    tokens_per_byte: int | None
    keeps_json: bool = True


@dataclass(frozen=True, slots=True)
class PreparedCompression:
    """A request that passed every check that needs no ledger and no compressor. `size` is the input's, in bytes.

    Of `messages`, the request's input is their JSON.
    """

    model_id: str
    request: CompressionRequest
    size: int
    with_spans: bool
    context_field: Literal["input", "messages"]


@dataclass(frozen=True, slots=True)
class Compressed:
    """A compression that is done. `kept` is the contract's, where it was asked for; `metering` says whether its usage
    is on record."""

    id: str
    created: datetime
    prepared: PreparedCompression
    result: CompressionResult
    kept: KeptFields | None
    metering: MeteringStatus


@dataclass(slots=True)
class Admitted:
    """What the project's limits say of a request that was let in. Add to `used_tokens` what was compressed."""

    limits: LimitState
    used_tokens: int = 0


class CompressService:
    """Everything between a parsed compression request and its compressor. The first model is the default."""

    def __init__(
        self,
        *,
        models: Mapping[str, ServedCompressor],
        prices: PriceBook,
        ledger: Ledger,
        limiter: RateLimits,
        metrics: CompressMetrics,
        clock: Callable[[], datetime],
    ) -> None:
        if not models:
            raise ValueError("models: at least one compression model is needed")
        self._models = models
        self._prices = prices
        self._ledger = ledger
        self._limiter = limiter
        self._metrics = metrics
        self._clock = clock

    @property
    def model_ids(self) -> tuple[str, ...]:
        """The default first."""
        return tuple(self._models)

    def model_id(self, wanted: str | None) -> str:
        """The model that was asked for, or the default. Raises `UnknownCompressionModel`."""
        if wanted is None:
            return next(iter(self._models))
        if wanted not in self._models:
            raise UnknownCompressionModel(wanted, tuple(self._models))
        return wanted

    def prepare(
        self, model_id: str | None, item: CompressInput, shared: Asked | None = None
    ) -> PreparedCompression:
        """Check what needs no I/O; `shared` holds for what the item does not say itself.

        Raises `UnknownCompressionModel`, `InputTooLarge` or `RefusedRequest`.
        """
        model_id = self.model_id(model_id)
        served = self._models[model_id]
        field, size = item.context_field, len(item.context.encode())
        if size > served.longest_input_bytes:
            raise InputTooLarge(field, size=size, limit=served.longest_input_bytes, unit="bytes")
        if field == "messages" and not served.keeps_json:
            raise RefusedRequest(field, "this model cuts words in JSON too; send the text as input")
        request = request_of(item, shared, default_ratio=served.default_ratio)
        return PreparedCompression(model_id, request, size, wants_spans(item, shared), field)

    def token_terms(self, caller: Caller, prepared: PreparedCompression) -> TokenTerms:
        """What the compression can come to. Where nothing is proven of its tokenizer, a byte counts as a token until
        the input is counted, and `compress` counts it before it holds anything."""
        served = self._models[prepared.model_id]
        most = prepared.size * (served.tokens_per_byte or 1)

        async def count() -> MostTokens:
            job = JobTerms(payer=caller.project_id)
            counted = await served.model.count_tokens(prepared.request.input, job)
            return MostTokens(counted, max(counted, most))

        return TokenTerms(MostTokens(most, most), MostTokens(1, most), count)

    @asynccontextmanager
    async def admitted(self, caller: Caller, items: Sequence[TokenTerms]) -> AsyncIterator[Admitted]:
        """One request of these inputs within the project's limits; counted exactly before it is refused.

        Raises `RateLimited`, or `PricesUnavailable` before it counts, and what `count_tokens` raises.
        """

        async def count() -> int:
            return sum([(await item.counted()).prompt for item in items])

        await self._prices.current()
        admission = await self._limiter.admit(
            caller,
            tokens_bound=sum(item.bound.prompt for item in items),
            tokens_least=len(items),
            count_tokens=count,
            now=self._clock(),
        )
        admitted = Admitted(admission.headers_state)
        try:
            yield admitted
        finally:
            await admission.done(admitted.used_tokens)

    async def compress(
        self, caller: Caller, prepared: PreparedCompression, request_id: str, tokens: TokenTerms
    ) -> Compressed:
        """Hold the worst-case cost, compress, and settle; a failure or a cancellation gives the hold back.

        Raises what `Ledger.hold`, `Ledger.settle` and `CompressionModel.compress` raise.
        """
        with self._metrics.observed(prepared.model_id) as observed:
            return await self._compress_for(caller, prepared, request_id, tokens, observed)

    async def _compress_for(
        self,
        caller: Caller,
        prepared: PreparedCompression,
        request_id: str,
        tokens: TokenTerms,
        observed: ObservedCompression,
    ) -> Compressed:
        price_list = await self._prices.current()
        price = price_of(price_list, prepared.model_id)
        if caller.metered and self._models[prepared.model_id].tokens_per_byte is None:
            await tokens.counted()
        terms = HoldTerms(caller, price, price_list.version, request_id, tokens)
        hold, most = await hold_worst_case(self._ledger, terms, clock=self._clock)
        try:
            result, kept = await self._run(prepared, JobTerms(payer=caller.project_id))
            check_paid_for(hold, most, price, result)
        except BaseException:
            await self._ledger.release(hold, now=self._clock())
            raise
        observed.compressed(result.receipt)
        # To its end, since the ledger's write goes on too when the caller is cancelled.
        settling = asyncio.create_task(self._settle(hold, price, result, observed))
        return self._compressed(prepared, result, kept, await asyncio.shield(settling))

    async def compress_unmetered(self, prepared: PreparedCompression, terms: JobTerms) -> Compressed:
        """Compress for nobody's account. Raises what `CompressionModel.compress` raises."""
        with self._metrics.observed(prepared.model_id) as observed:
            result, kept = await self._run(prepared, terms)
            observed.compressed(result.receipt)
        return self._compressed(prepared, result, kept, "not_applicable")

    async def _run(
        self, prepared: PreparedCompression, terms: JobTerms
    ) -> tuple[CompressionResult, KeptFields | None]:
        """The compression, and where what it kept stands, if that was asked. Raises what `compress` raises."""
        text = prepared.request.input
        try:
            result = await self._models[prepared.model_id].model.compress(prepared.request, terms)
        except CompressionError as error:
            if error.field != "input":
                raise
            raise RefusedRequest(prepared.context_field, error.message) from error
        if not prepared.with_spans:
            return result, None
        kept_of = kept_fields if prepared.context_field == "input" else kept_of_messages
        # Of megabytes of messages this takes longer than the event loop may stand still.
        return result, await asyncio.to_thread(kept_of, text, result.kept)

    async def _settle(
        self, hold: Hold, price: ModelPrice, result: CompressionResult, observed: ObservedCompression
    ) -> MeteringStatus:
        receipt = result.receipt
        figures = UsageFigures(
            prompt_tokens=receipt.original_tokens,
            completion_tokens=receipt.output_tokens,
            cached_tokens=0,
            stream=False,
            receipt=orjson.dumps(receipt_fields(receipt)).decode(),
        )
        charged = cost_of(result, price)
        try:
            settlement = await self._ledger.settle(
                hold, figures=figures, cost=charged, outcome="completed", now=self._clock()
            )
        except UsageNotRecorded:
            observed.lose()
            raise
        observed.settle(charged, settlement.status)
        return settlement.status

    def _compressed(
        self,
        prepared: PreparedCompression,
        result: CompressionResult,
        kept: KeptFields | None,
        metering: MeteringStatus,
    ) -> Compressed:
        return Compressed(
            id=f"cmp_{fresh_id()}",
            created=self._clock(),
            prepared=prepared,
            result=result,
            kept=kept,
            metering=metering,
        )
