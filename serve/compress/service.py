"""A compression from checked body to settled cost and reply: prepare, admit, hold, compress, settle or release."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import Any, Literal

import orjson
from starlette.responses import Response

from billing.caller import Caller
from billing.usage import MeteringStatus
from compression.conversation import spans_by_message
from compression.pipeline.compression_model import (
    LONGEST_SIZED_BYTES,
    CompressionRequest,
    CompressionResult,
    JobTerms,
    Receipt,
    Sized,
)
from compression.pipeline.errors import CompressionError, CompressorFailed, InputTooLarge, RefusedRequest
from compression.source.units import Slice
from models.engine import TokenUsage
from serve.compress.request import Asked, CompressInput, request_of, retain_s_of, wants_spans
from serve.compressors.compressor import (
    ServedCompressor,
    compressor_id,
    receipt_fields,
    receipts_sha256,
    token_terms,
)
from serve.http.middleware import fresh_id
from serve.http.replies import Client
from serve.metrics.charged_requests import CompressMetrics
from serve.money.admission import Admissions, Admitted, ChargedReply
from serve.money.held_request import AlsoWrite, HeldRequest, MoreThanHeld, Promise, TokenTerms
from serve.money.prices import promised_service
from serve.originals.originals import Original, Originals
from serve.tracing.request_record import step

KeptFields = list[dict[str, Any]]


def kept_fields(text: str, kept: Sequence[Slice]) -> KeptFields:
    """The contract's `kept`, in the order of `kept`; its offsets are code points of `text`."""
    at_byte = _bytes_at(text, kept)
    return [
        {"start": start, "end": end, "bytes": {"start": at_byte[start], "end": at_byte[end]}}
        for start, end in kept
    ]


def kept_of_messages(text: str, kept: Sequence[Slice]) -> KeptFields:
    """The contract's `kept` of messages whose JSON is `text`: offsets are code points of a content or text part."""
    return [
        {
            "message": message.index,
            "part": part.path[0] if part.path else None,
            "inner": part.path[1] if len(part.path) > 1 else None,
            "start": start,
            "end": end,
        }
        for message in spans_by_message(text, kept)
        for part in message.texts
        for start, end in part.spans
    ]


def _bytes_at(text: str, kept: Sequence[Slice]) -> dict[int, int]:
    """The bytes of the text before each end of a span. The text is read once."""
    found: dict[int, int] = {}
    before = size = 0
    for at in sorted({at for span in kept for at in span}):
        size += len(text[before:at].encode())
        found[at] = size
        before = at
    return found


def check_sizes(served: ServedCompressor, field: str, size: int) -> None:
    """Raises `RefusedRequest` where other sizes cannot be told of: `size` is the context's, in bytes."""
    if not served.offers_sizes:
        raise RefusedRequest("sizes", "this model chooses words anew for each size; ask for one at a time")
    if field == "messages":
        raise RefusedRequest("sizes", "are for input; for messages, ask for one at a time")
    if size > LONGEST_SIZED_BYTES:
        raise RefusedRequest(
            "sizes", f"the input holds {size:,} bytes; with sizes the limit is {LONGEST_SIZED_BYTES:,}"
        )


def sized_fields(sizes: Sequence[Sized]) -> list[dict[str, Any]]:
    """The response's `sizes`, in the order of the request's. Offsets are code points of the input."""
    return [
        {"kept": [(start, end) for start, end in one.kept], "receipt": receipt_fields(one.receipt)}
        for one in sizes
    ]


logger = logging.getLogger("pith.compress")


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
    # Seconds for which the original is to be kept; 0: not at all.
    retain_s: int


@dataclass(frozen=True, slots=True)
class Compressed:
    """A compression that is done. `kept` is the contract's, where it was asked for; `metering` says whether its usage
    is on record. `retained_until` is Unix time, None where its original is not kept."""

    id: str
    created: datetime
    prepared: PreparedCompression
    result: CompressionResult
    kept: KeptFields | None
    metering: MeteringStatus
    # Where the project asks for it.
    promise: Promise | None = None
    retained_until: int | None = None


# What usage events call compressions that were asked for by themselves, of one text, many, or messages.
ROUTE = "compress"
# What is written with the settlement of a compression, which is as it will be once its metering is known.
Done = Callable[[MeteringStatus, "Promise | None"], Compressed]
AlsoWriteCompressed = Callable[[Done], AlsoWrite | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressService:
    """Everything between a parsed compression request and its compressor. The first model is the default."""

    models: Mapping[str, ServedCompressor]
    admissions: Admissions
    metrics: CompressMetrics
    originals: Originals

    def __post_init__(self) -> None:
        if not self.models:
            raise ValueError("models: at least one compression model is needed")

    @property
    def model_ids(self) -> tuple[str, ...]:
        """The default first."""
        return tuple(self.models)

    def model_id(self, wanted: str | None) -> str:
        """The model that was asked for, or the default. Raises `UnknownCompressionModel`."""
        return compressor_id(self.models, wanted)

    def prepare(
        self, model_id: str | None, item: CompressInput, shared: Asked | None = None
    ) -> PreparedCompression:
        """Check what needs no I/O; `shared` holds for what the item does not say itself.

        Raises `UnknownCompressionModel`, `InputTooLarge`, `RefusedRequest` or `InvalidField`.
        """
        model_id = self.model_id(model_id)
        served = self.models[model_id]
        field, size = item.context_field, len(item.context.encode())
        if size > served.longest_input_bytes:
            raise InputTooLarge(field, size=size, limit=served.longest_input_bytes, unit="bytes")
        if field == "messages" and not served.keeps_json:
            raise RefusedRequest(field, "this model cuts words in JSON too; send the text as input")
        retain_s = retain_s_of(item, shared)
        self.originals.retention.check(retain_s)
        request = request_of(item, shared, default_ratio=served.default_ratio)
        if request.sizes:
            check_sizes(served, field, size)
        return PreparedCompression(model_id, request, size, wants_spans(item, shared), field, retain_s)

    def token_terms(self, caller: Caller, prepared: PreparedCompression) -> TokenTerms:
        """The most that the compression can use."""
        served = self.models[prepared.model_id]
        return token_terms(prepared.model_id, served, [prepared.request.input], payer=caller.project_id)

    async def compress(
        self,
        admitted: Admitted,
        prepared: PreparedCompression,
        tokens: TokenTerms,
        also_write: AlsoWriteCompressed | None = None,
    ) -> Compressed:
        """Hold the worst-case cost, compress, and settle; a failure or a cancellation gives the hold back. The original
        is kept after that, if asked for: nothing is owed for it, and the reply says whether it is.

        Raises what `Admitted.hold`, `HeldRequest.settle` and `CompressionModel.compress` raise.
        """
        observed = self.metrics.begin(prepared.model_id)
        async with admitted.hold(tokens, observed) as held:
            result, kept = await self._run(prepared, JobTerms(payer=admitted.caller.project_id))
            use_receipts(held, [result.receipt])
            observed.compressed(result.receipt)
            receipt = orjson.dumps(receipt_fields(result.receipt)).decode()
            id_ = f"cmp_{fresh_id()}"
            done = partial(Compressed, id_, self.admissions.clock(), prepared, result, kept)
            also = None if also_write is None else also_write(done)
            settled = await held.settle("completed", receipt=receipt, also_write=also)
        until = await self._retain(admitted.caller, id_, prepared)
        return done(settled.settlement.status, settled.promise, until)

    async def compress_unmetered(self, prepared: PreparedCompression, terms: JobTerms) -> Compressed:
        """Compress without charging anyone. Raises what `CompressionModel.compress` raises."""
        with self.metrics.begin(prepared.model_id) as observed:
            result, kept = await self._run(prepared, terms)
            observed.compressed(result.receipt)
        return Compressed(
            f"cmp_{fresh_id()}", self.admissions.clock(), prepared, result, kept, "not_applicable"
        )

    async def _retain(self, caller: Caller, id_: str, prepared: PreparedCompression) -> int | None:
        if not prepared.retain_s:
            return None
        original = Original(id_, prepared.request.input)
        kept = await self.originals.keep(caller, [original], retain_s=prepared.retain_s)
        return kept.until.get(id_)

    async def _run(
        self, prepared: PreparedCompression, terms: JobTerms
    ) -> tuple[CompressionResult, KeptFields | None]:
        """The compression, and the positions of the parts kept if requested. Raises what `compress` raises."""
        text = prepared.request.input
        try:
            with step(f"compress {prepared.model_id}", "client"):
                result = await self.models[prepared.model_id].model.compress(prepared.request, terms)
        except CompressionError as error:
            if error.field != "input":
                raise
            raise RefusedRequest(prepared.context_field, error.message) from error
        if not prepared.with_spans:
            return result, None
        kept_of = kept_fields if prepared.context_field == "input" else kept_of_messages
        # Of megabytes of messages this takes longer than the event loop may stand still.
        return result, await asyncio.to_thread(kept_of, text, result.kept)


def use_receipts(held: HeldRequest, receipts: Sequence[Receipt]) -> None:
    """Note what the receipts say, where there are any. Raises `CompressorFailed` if it exceeds the hold."""
    if not receipts:
        return
    original, output = (sum(map(attrgetter(name), receipts)) for name in ("original_tokens", "output_tokens"))
    try:
        held.use(TokenUsage(original, output), receipts_sha256(receipts))
    except MoreThanHeld as error:
        raise CompressorFailed(str(error)) from None


def compressed_fields(compressed: Compressed) -> dict[str, Any]:
    """The contract's compression object: what was not asked for is not in it."""
    prepared, result = compressed.prepared, compressed.result
    fields: dict[str, Any] = {
        "id": compressed.id,
        "object": "compression",
        "created": int(compressed.created.timestamp()),
        "model": prepared.model_id,
        "output": result.output,
    }
    if prepared.context_field == "messages":
        # The output is an array of messages; so it is not read again, and no number in it changes.
        fields["messages"] = orjson.Fragment(result.output.encode())
    if compressed.kept is not None:
        fields["kept"] = compressed.kept
    if prepared.request.sizes:
        fields["sizes"] = sized_fields(result.sizes)
    if prepared.retain_s:
        fields["retained_until"] = compressed.retained_until
    service = promised_service(compressed.metering, compressed.promise)
    return {**fields, "receipt": receipt_fields(result.receipt), **service}


class CompressReply(ChargedReply):
    """A project's compression."""

    def __init__(
        self, service: CompressService, caller: Caller, prepared: PreparedCompression, request_id: str
    ) -> None:
        terms = [service.token_terms(caller, prepared)]
        super().__init__(service.admissions, caller, request_id, ROUTE, terms, logger)
        self._service = service
        self._prepared = prepared

    async def answer(self, admitted: Admitted, client: Client) -> Response:
        (tokens,) = admitted.parts
        compressed = await self._service.compress(admitted, self._prepared, tokens, self._written)
        return json_response(compressed_fields(compressed), admitted.reply_headers(compressed.metering))

    def _written(self, done: Done) -> AlsoWrite | None:
        return self.also_write(
            lambda charged: [
                orjson.dumps(compressed_fields(done(charged.settlement.status, charged.promise)))
            ]
        )


def json_response(fields: dict[str, Any], headers: dict[str, str]) -> Response:
    return Response(orjson.dumps(fields), headers=headers, media_type="application/json")
