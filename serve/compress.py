"""A compression from checked body to settled cost: prepare, admit, hold, compress, settle or release."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import orjson

from billing.caller import Caller
from billing.errors import UsageNotRecorded
from billing.ledger import Ledger
from billing.limits import RateLimits
from billing.price import ModelPrice, cost
from billing.usage import Hold, MeteringStatus, UsageFigures
from billing.window import LimitState
from compression.errors import InputTooLarge, UnknownCompressionModel
from compression.model import NO_TERMS, CompressionModel, JobTerms
from compression.request import CompressionRequest, CompressionResult
from serve.compress_contract import CompressInput, CompressOptions
from serve.compress_fields import receipt_fields
from serve.fresh_id import fresh_id
from serve.holds import HoldTerms, hold_worst_case
from serve.metrics.compress import CompressMetrics, ObservedCompression
from serve.prices import PriceBook, price_of


class CountingModel(CompressionModel, Protocol):
    """A compression model that can say beforehand how many tokens its receipt will count in an input."""

    async def count_tokens(self, text: str, terms: JobTerms = NO_TERMS) -> int:
        """Raises what `compress` does, but for a `CompressionError`."""
        ...


@dataclass(frozen=True, slots=True)
class ServedCompressor:
    """A compression model with what a request may leave out, and the input in bytes that it takes."""

    model: CountingModel
    default_ratio: float
    longest_input_bytes: int


@dataclass(frozen=True, slots=True)
class PreparedCompression:
    """A request that passed every check that needs no ledger and no compressor.

    A byte is at most one token: `tokens_bound` are the input's bytes.
    """

    model_id: str
    request: CompressionRequest
    tokens_bound: int


@dataclass(frozen=True, slots=True)
class Compressed:
    """A compression that is done. `metering` says whether its usage is on record."""

    id: str
    created: datetime
    model_id: str
    result: CompressionResult
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
        self, model_id: str | None, item: CompressInput, shared: CompressOptions | None = None
    ) -> PreparedCompression:
        """Check what needs no I/O; `shared` holds for what the item does not say itself.

        Raises `UnknownCompressionModel` or `InputTooLarge`.
        """
        model_id = self.model_id(model_id)
        served = self._models[model_id]
        size = len(item.input.encode())
        if size > served.longest_input_bytes:
            raise InputTooLarge("input", size=size, limit=served.longest_input_bytes, unit="bytes")
        said = [options for options in (item.compression, shared) if options is not None]
        ratios = [options.target_ratio for options in said if options.target_ratio is not None]
        orders = [options.preserve_order for options in said if options.preserve_order is not None]
        request = CompressionRequest(
            query=item.query,
            input=item.input,
            target_ratio=ratios[0] if ratios else served.default_ratio,
            preserve_order=orders[0] if orders else True,
        )
        return PreparedCompression(model_id, request, tokens_bound=size)

    @asynccontextmanager
    async def admitted(self, caller: Caller, tokens_bound: int) -> AsyncIterator[Admitted]:
        """One request within the project's limits. Raises `RateLimited`, or `PricesUnavailable` before it counts."""
        await self._prices.current()
        admission = await self._limiter.admit(caller, tokens_bound=tokens_bound, now=self._clock())
        admitted = Admitted(admission.headers_state)
        try:
            yield admitted
        finally:
            await admission.done(admitted.used_tokens)

    async def compress(self, caller: Caller, prepared: PreparedCompression, request_id: str) -> Compressed:
        """Hold the worst-case cost, compress, and settle; a failure or a cancellation gives the hold back.

        Raises what `Ledger.hold`, `Ledger.settle` and `CompressionModel.compress` raise.
        """
        with self._metrics.observed(prepared.model_id) as observed:
            return await self._compress_for(caller, prepared, request_id, observed)

    async def _compress_for(
        self, caller: Caller, prepared: PreparedCompression, request_id: str, observed: ObservedCompression
    ) -> Compressed:
        price_list = await self._prices.current()
        price = price_of(price_list, prepared.model_id)
        model = self._models[prepared.model_id].model
        job = JobTerms(payer=caller.project_id)
        terms = HoldTerms(
            caller=caller,
            price=price,
            pricing_version=price_list.version,
            request_id=request_id,
            prompt_tokens_bound=prepared.tokens_bound,
            completion_tokens_bound=prepared.tokens_bound,
        )
        hold = await hold_worst_case(
            self._ledger,
            terms,
            count_prompt=lambda: model.count_tokens(prepared.request.input, job),
            clock=self._clock,
        )
        try:
            result = await model.compress(prepared.request, job)
        except BaseException:
            await self._ledger.release(hold, now=self._clock())
            raise
        observed.compressed(result.receipt)
        # To its end, since the ledger's write goes on too when the caller is cancelled.
        settling = asyncio.create_task(self._settle(hold, price, result, observed))
        return self._compressed(prepared, result, await asyncio.shield(settling))

    async def compress_unmetered(self, prepared: PreparedCompression, terms: JobTerms) -> Compressed:
        """Compress for nobody's account. Raises what `CompressionModel.compress` raises."""
        with self._metrics.observed(prepared.model_id) as observed:
            result = await self._models[prepared.model_id].model.compress(prepared.request, terms)
            observed.compressed(result.receipt)
        return self._compressed(prepared, result, "not_applicable")

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
        charged = cost(
            price,
            prompt_tokens=receipt.original_tokens,
            completion_tokens=receipt.output_tokens,
            minimum=True,
        )
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
        self, prepared: PreparedCompression, result: CompressionResult, metering: MeteringStatus
    ) -> Compressed:
        return Compressed(
            id=f"cmp_{fresh_id()}",
            created=self._clock(),
            model_id=prepared.model_id,
            result=result,
            metering=metering,
        )
