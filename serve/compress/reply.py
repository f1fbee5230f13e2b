"""Sends one compression, for a project or for the demo, and stops waiting for it when its client has gone."""

import json
import logging
from collections.abc import Callable
from typing import Any

import orjson
from starlette.responses import Response
from starlette.types import Send

from billing.caller import Caller
from billing.usage import MeteringStatus
from compression.pipeline.served import JobTerms
from serve.compress.demo_limits import DemoLimits
from serve.compress.prompt import CompressedMessages, MessagesService, PreparedMessages
from serve.compress.response import CompressMessagesResponse
from serve.compress.service import ROUTE, Compressed, CompressService, PreparedCompression, sized_fields
from serve.compressors.compressor import receipt_fields
from serve.http.limits import client_of, rate_limit_headers
from serve.http.replies import Client, WorkingReply
from serve.money.admission import Admitted, ChargedReply
from serve.money.held_request import AlsoWrite
from serve.prompt_compression.compressed_chat import CompressedBlock

logger = logging.getLogger("pith.compress")


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
    return {**fields, "receipt": receipt_fields(result.receipt)}


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
        return _response(compressed_fields(compressed), admitted.reply_headers(compressed.metering))

    def _written(self, done: Callable[[MeteringStatus], Compressed]) -> AlsoWrite | None:
        return self.also_write(
            lambda charged: [orjson.dumps(compressed_fields(done(charged.settlement.status)))]
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
        blocks=[CompressedBlock.of(each, compressed.until.get(each.id)) for each in prompt.outcomes],
    )
    return {**answer.model_dump(), "messages": orjson.Fragment(messages.encode())}


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
        return _response(compressed_messages_fields(compressed), admitted.reply_headers(compressed.metering))


class DemoReply(WorkingReply):
    """A compression without a key: within the demo's limits, and free of charge."""

    def __init__(
        self,
        service: CompressService,
        limits: DemoLimits,
        address: str | None,
        prepared: PreparedCompression,
        request_id: str,
        *,
        deadline_s: float,
    ) -> None:
        super().__init__(request_id, logger)
        self._service = service
        self._limits = limits
        self._address = address
        self._prepared = prepared
        self._terms = JobTerms(payer=client_of(address), is_trial=True, deadline_s=deadline_s)

    async def work(self, send: Send, client: Client) -> Response:
        sizes = len(self._prepared.request.sizes)
        async with self._limits.admitted(self._address, sizes=sizes) as state:
            compressed = await self._service.compress_unmetered(self._prepared, self._terms)
        return _response(compressed_fields(compressed), rate_limit_headers(state))


def _response(fields: dict[str, Any], headers: dict[str, str]) -> Response:
    return Response(orjson.dumps(fields), headers=headers, media_type="application/json")
