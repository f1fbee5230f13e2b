"""A compression from checked body to settled cost: prepare, admit, hold, compress, settle or release."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

import orjson

from billing.caller import Caller
from billing.usage import MeteringStatus
from compression.pipeline.errors import (
    CompressionError,
    CompressorFailed,
    InputTooLarge,
    RefusedRequest,
    UnknownCompressionModel,
)
from compression.pipeline.receipt import Receipt
from compression.pipeline.request import CompressionRequest, CompressionResult
from compression.pipeline.served import NO_TERMS, CompressionModel, JobTerms
from models.engine import TokenUsage
from serve.compress.kept import KeptFields, kept_fields, kept_of_messages
from serve.compress.options import request_of, wants_spans
from serve.compress.receipt_json import receipt_fields
from serve.compress.request import Asked, CompressInput
from serve.http.fresh_id import fresh_id
from serve.metrics.compress import CompressMetrics
from serve.money.admission import Admissions, Admitted
from serve.money.held_request import HeldRequest, MoreThanHeld
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
    a byte can be in its receipts; None if that is not proven. `keeps_json`: what it leaves of JSON is JSON."""

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


class CompressService:
    """Everything between a parsed compression request and its compressor. The first model is the default."""

    def __init__(
        self,
        *,
        models: Mapping[str, ServedCompressor],
        admissions: Admissions,
        metrics: CompressMetrics,
    ) -> None:
        if not models:
            raise ValueError("models: at least one compression model is needed")
        self._models = models
        self.admissions = admissions
        self._metrics = metrics

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
        """What the compression can use at most. If nothing is proven of its tokenizer, a byte counts as a token until
        the input is counted, which is done before anything is held."""
        served = self._models[prepared.model_id]
        most = prepared.size * (served.tokens_per_byte or 1)

        async def count() -> MostTokens:
            job = JobTerms(payer=caller.project_id)
            counted = await served.model.count_tokens(prepared.request.input, job)
            return MostTokens(counted, max(counted, most))

        return TokenTerms(
            prepared.model_id,
            MostTokens(most, most),
            MostTokens(1, most),
            count,
            bound_is_proven=served.tokens_per_byte is not None,
            limits_completion=False,
        )

    async def compress(
        self, admitted: Admitted, prepared: PreparedCompression, tokens: TokenTerms
    ) -> Compressed:
        """Hold the worst-case cost, compress, and settle; a failure or a cancellation gives the hold back.

        Raises what `Admitted.hold`, `HeldRequest.settle` and `CompressionModel.compress` raise.
        """
        observed = self._metrics.begin(prepared.model_id)
        async with admitted.hold(tokens, observed) as held:
            result, kept = await self._run(prepared, JobTerms(payer=admitted.caller.project_id))
            _use(held, prepared.model_id, result.receipt)
            observed.compressed(result.receipt)
            receipt = orjson.dumps(receipt_fields(result.receipt)).decode()
            metering = (await held.settle("completed", receipt=receipt)).settlement.status
        return Compressed(f"cmp_{fresh_id()}", self.admissions.clock(), prepared, result, kept, metering)

    async def compress_unmetered(self, prepared: PreparedCompression, terms: JobTerms) -> Compressed:
        """Compress without charging anyone. Raises what `CompressionModel.compress` raises."""
        with self._metrics.begin(prepared.model_id) as observed:
            result, kept = await self._run(prepared, terms)
            observed.compressed(result.receipt)
        return Compressed(
            f"cmp_{fresh_id()}", self.admissions.clock(), prepared, result, kept, "not_applicable"
        )

    async def _run(
        self, prepared: PreparedCompression, terms: JobTerms
    ) -> tuple[CompressionResult, KeptFields | None]:
        """The compression, and the positions of the parts kept if requested. Raises what `compress` raises."""
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


def _use(held: HeldRequest, model_id: str, receipt: Receipt) -> None:
    """Note what the receipt says. Raises `CompressorFailed` if it exceeds the hold."""
    try:
        held.use(TokenUsage(receipt.original_tokens, receipt.output_tokens))
    except MoreThanHeld:
        logger.critical("%s: the receipt %r exceeds the hold %r", model_id, receipt, held.most)
        raise CompressorFailed(
            f"{model_id}: the compressor counted more tokens than its stated maximum"
        ) from None
