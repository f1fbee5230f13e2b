"""Messages without a query: their long parts are compressed as inside chat, each for its own question.

Headroom's clients, such as LiteLLM's guardrail, send such requests.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import orjson
from starlette.responses import Response

from billing.accounts.keys import require_models
from billing.caller import Caller
from billing.usage import MeteringStatus, Outcome
from compression.flags import Flag
from compression.pipeline.compression_model import Receipt
from serve.compress.request import CompressMessagesRequest
from serve.compress.response import CompressMessagesResponse
from serve.compress.service import ROUTE, json_response, use_receipts
from serve.compressors.compressor import receipt_fields, token_terms
from serve.http.middleware import fresh_id
from serve.http.replies import Client
from serve.money.admission import Admissions, Admitted, ChargedReply
from serve.money.held_request import Promise, TokenTerms
from serve.money.held_request import Receipt as Charged
from serve.money.prices import promised_service
from serve.prompt_compression.blocks import Message, find_blocks
from serve.prompt_compression.compressed_chat import block_fields
from serve.prompt_compression.options import (
    PromptCompressionOptions,
    PromptCompressionSettings,
    default_of,
    settings_of,
)
from serve.prompt_compression.outcome import BlockOutcome, Claims, CompressedPrompt, receipts_of
from serve.prompt_compression.service import PromptCompressor, refuse_failure

logger = logging.getLogger("pith.compress")
# Later blocks are left whole: each one is a request to a replica.
MOST_BLOCKS = 1024


@dataclass(frozen=True, slots=True)
class PreparedMessages:
    """A request that passed every check that needs no ledger and no compressor."""

    messages: Sequence[Message]
    settings: PromptCompressionSettings
    # Of each block, as far as it is known without any work; `terms` are those of the work that is due.
    outcomes: Sequence[BlockOutcome]
    terms: Sequence[TokenTerms]


@dataclass(frozen=True, slots=True)
class CompressedMessages:
    """The outcome. `until`: by block, the Unix time until which its original is kept. `metering` says whether its usage
    is on record."""

    id: str
    created: datetime
    prepared: PreparedMessages
    prompt: CompressedPrompt
    until: Mapping[str, int]
    metering: MeteringStatus
    # Where the project asks for it, of what was charged.
    promise: Promise | None = None


@dataclass(frozen=True, slots=True)
class MessagesService:
    """Everything between parsed messages and their compressor. The first model is the default."""

    compressor: PromptCompressor
    admissions: Admissions

    def prepare(self, caller: Caller, body: CompressMessagesRequest) -> PreparedMessages:
        """Check what needs no I/O. Raises `InvalidField` and `ModelNotAllowed`."""
        settings = self.compressor.size_now(self._settings(caller, body), body.messages, caller)
        # Also where nothing is left to do for the model.
        require_models(caller, [settings.model_id])
        self.compressor.originals.retention.check(body.compression.retain_s if body.compression else None)
        blocks = find_blocks(body.messages, settings.scope)[:MOST_BLOCKS]
        served = self.compressor.models[settings.model_id]
        outcomes = self.compressor.blocks.known(blocks, settings, caller, served)
        due = [outcome.block.text for outcome in outcomes if outcome.is_due]
        terms = token_terms(settings.model_id, served, due, payer=caller.project_id)
        return PreparedMessages(body.messages, settings, outcomes, [terms] if due else [])

    def _settings(self, caller: Caller, body: CompressMessagesRequest) -> PromptCompressionSettings:
        """The request's options over its project's. Without a scope all messages are compressed, and `model` may name
        any vendor's chat model."""
        asked = body.compression or PromptCompressionOptions()
        default = default_of(caller.compression) or PromptCompressionOptions()
        models = self.compressor.models
        named = [model for model in (body.model, default.model, *models) if model in models]
        said = {"model": asked.model or named[0], "scope": asked.scope or default.scope or "all"}
        settings = settings_of(asked.model_copy(update=said), default, models)
        if settings.scope == "all":
            # The reply serves one prompt, so no later turn needs the same prefix.
            settings = replace(settings, scope="all_but_newest")
        return replace(settings, is_asked=body.compression is not None)

    async def compress(
        self, admitted: Admitted, prepared: PreparedMessages, client: Client
    ) -> CompressedMessages:
        """Compress what was not compressed before, and charge it as one compression.

        Raises what `Admitted.hold` and `HeldRequest.settle` raise, `CompressionError` for options that the model does
        not take, and `CompressorUnavailable` where the request refuses parts left whole.
        """
        outcomes, caller = prepared.outcomes, admitted.caller
        metering: MeteringStatus = "persisted" if caller.metered else "not_applicable"
        due = [outcome for outcome in outcomes if outcome.is_due]
        promise: Promise | None = None
        if due:
            found, receipt = await self._charged(admitted, prepared.settings, due, client)
            metering, promise = receipt.settlement.status, receipt.promise
            done = iter(found)
            outcomes = [next(done) if outcome.is_due else outcome for outcome in outcomes]
        prompt = CompressedPrompt(tuple(map(_whole_if_nothing_saved, outcomes)))
        until: Mapping[str, int] = {}
        if (retain_s := prepared.settings.retain_s) and prompt.compressed:
            kept = await self.compressor.originals.keep(caller, prompt.originals, retain_s=retain_s)
            until = kept.until
        created = self.admissions.clock()
        return CompressedMessages(f"cmp_{fresh_id()}", created, prepared, prompt, until, metering, promise)

    async def _charged(
        self,
        admitted: Admitted,
        settings: PromptCompressionSettings,
        due: Sequence[BlockOutcome],
        client: Client,
    ) -> tuple[list[BlockOutcome], Charged]:
        """Hold, compress what is pending, settle. All work is charged, whatever it saved."""
        (terms,) = admitted.parts
        observed, claims = self.compressor.metrics.begin(settings.model_id), Claims("work")
        async with admitted.hold(terms, observed, client=client, prompt=claims) as held:
            found = await self._run(settings, due, admitted.caller)
            outcome: Outcome = "completed" if receipts_of(found) else "failed"
            claims.take(found)
            try:
                receipts = receipts_of(claims.outcomes)
                total = sum_of(receipts)
                use_receipts(held, receipts)
                for each in receipts:
                    observed.compressed(each)
                written = None if total is None else orjson.dumps(receipt_fields(total)).decode()
                receipt = await held.settle(outcome, receipt=written)
            finally:
                # A settlement that has begun goes on without its client.
                if not held.is_settled:
                    claims.end_settlement(is_paid=False)
            claimed = {each.id for each in claims.outcomes}
            marked = [replace(each, is_cached=each.is_cached or each.id not in claimed) for each in found]
            return marked, receipt

    async def _run(
        self, settings: PromptCompressionSettings, due: Sequence[BlockOutcome], caller: Caller
    ) -> list[BlockOutcome]:
        served = self.compressor.models[settings.model_id]
        found = await self.compressor.blocks.compress(due, settings, caller, served, is_free=False)
        refuse_failure(settings, CompressedPrompt(tuple(found)))
        return found


def sum_of(receipts: Sequence[Receipt]) -> Receipt | None:
    """One receipt for several parts, or None for none: tokens, time and flags, added up. Examples and probabilities
    are each part's."""
    if not receipts:
        return None
    flags: dict[tuple[str, str], Flag] = {}
    for flag in (flag for receipt in receipts for flag in receipt.risk_flags):
        key = flag.code, flag.severity
        count = flag.count + (flags[key].count if key in flags else 0)
        flags[key] = Flag(flag.code, flag.severity, count)
    return replace(
        receipts[0],
        original_tokens=sum(receipt.original_tokens for receipt in receipts),
        output_tokens=sum(receipt.output_tokens for receipt in receipts),
        latency_ms=sum(receipt.latency_ms for receipt in receipts),
        risk_flags=tuple(flags.values()),
        estimated_ratio=None,
        evidence_kept_probability=None,
        source_sha256="",
        kept_sha256="",
    )


def _whole_if_nothing_saved(outcome: BlockOutcome) -> BlockOutcome:
    return (
        outcome
        if not outcome.is_compressed or outcome.tokens_saved > outcome.footer_tokens
        else replace(outcome, reason="nothing_saved")
    )


def compressed_messages_fields(compressed: CompressedMessages) -> dict[str, Any]:
    """The body that Headroom's clients read, with our fields beside it. Tokens are those of the parts that were
    compressed, now or before."""
    prompt, model_id = compressed.prompt, compressed.prepared.settings.model_id
    before = sum(each.compression.receipt.original_tokens for each in prompt.outcomes if each.compression)
    saved = sum(outcome.tokens_saved for outcome in prompt.outcomes)
    # Numbers of any size go back as they came, which orjson would refuse.
    rewritten = prompt.rewritten(compressed.prepared.messages)
    messages = json.dumps(rewritten, ensure_ascii=False, separators=(",", ":"))
    answer = CompressMessagesResponse(
        id=compressed.id,
        object="compression.messages",
        created=int(compressed.created.timestamp()),
        model=model_id,
        messages=[],
        tokens_before=before,
        tokens_after=before - saved,
        tokens_saved=saved,
        compression_ratio=(before - saved) / before if before else 1.0,
        transforms_applied=[model_id] if prompt.compressed else [],
        status=prompt.status,
        blocks=[],
    )
    return {
        **answer.model_dump(),
        "messages": orjson.Fragment(messages.encode()),
        "blocks": [block_fields(each, compressed.until.get(each.id)) for each in prompt.outcomes],
        **promised_service(compressed.metering, compressed.promise),
    }


class MessagesReply(ChargedReply):
    """Messages of which the long parts were compressed."""

    def __init__(
        self, service: MessagesService, caller: Caller, prepared: PreparedMessages, request_id: str
    ) -> None:
        super().__init__(service.admissions, caller, request_id, ROUTE, prepared.terms, logger)
        self._service = service
        self._prepared = prepared

    async def answer(self, admitted: Admitted, client: Client) -> Response:
        compressed = await self._service.compress(admitted, self._prepared, client)
        return json_response(
            compressed_messages_fields(compressed), admitted.reply_headers(compressed.metering)
        )
