"""Sends one compression, for a project or for the demo, and stops waiting for it when its client has gone."""

import json
import logging
from functools import partial
from typing import Any

import orjson
from starlette.responses import Response
from starlette.types import Send

from billing.caller import Caller
from billing.store.database import Work
from compression.pipeline.served import JobTerms
from serve.compress.demo_limits import DemoLimits
from serve.compress.prompt import CompressedMessages, MessagesService, PreparedMessages
from serve.compress.service import ROUTE, Compressed, CompressService, PreparedCompression, sized_fields
from serve.compressors.receipt_json import receipt_fields
from serve.http.client_address import client_of
from serve.http.limits import rate_limit_headers
from serve.http.replies import Client, WorkingReply
from serve.money.held_request import Receipt, Record
from serve.prompt_compression.compressed_chat import block_fields

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


class CompressReply(WorkingReply):
    """A project's compression: within its limits, and charged."""

    def __init__(
        self, service: CompressService, caller: Caller, prepared: PreparedCompression, request_id: str
    ) -> None:
        super().__init__(request_id, logger)
        self._service = service
        self._caller = caller
        self._prepared = prepared
        # What is written with its settlement.
        self.record: Record | None = None

    async def work(self, send: Send, client: Client) -> Response:
        tokens = self._service.token_terms(self._caller, self._prepared)
        record = partial(_recorded, self.record) if self.record is not None else None
        admissions = self._service.admissions
        async with admissions.admit(self._caller, self.request_id, [tokens], route=ROUTE) as admitted:
            compressed = await self._service.compress(admitted, self._prepared, tokens, record)
        return _response(compressed, admitted.reply_headers(compressed.metering))


def _recorded(record: Record, compressed: Compressed, charged: Receipt) -> Work[None]:
    return record([orjson.dumps(compressed_fields(compressed))], charged)


def compressed_messages_fields(compressed: CompressedMessages) -> dict[str, Any]:
    """What Headroom's clients read, and ours beside it. Tokens are those of the parts that were compressed, now or
    before."""
    prompt, model_id = compressed.prompt, compressed.prepared.settings.model_id
    before = sum(each.compression.receipt.original_tokens for each in prompt.outcomes if each.compression)
    saved = sum(outcome.tokens_saved for outcome in prompt.outcomes)
    # Numbers of any size go back as they came, which orjson would refuse.
    rewritten = prompt.rewritten(compressed.prepared.messages)
    messages = json.dumps(rewritten, ensure_ascii=False, separators=(",", ":"))
    return {
        "id": compressed.id,
        "object": "compression.messages",
        "created": int(compressed.created.timestamp()),
        "model": model_id,
        "messages": orjson.Fragment(messages.encode()),
        "tokens_before": before,
        "tokens_after": before - saved,
        "tokens_saved": saved,
        "compression_ratio": (before - saved) / before if before else 1.0,
        "transforms_applied": [model_id] if prompt.compressed else [],
        "status": prompt.status,
        "blocks": [
            {**block_fields(outcome), "retained_until": compressed.until.get(outcome.id)}
            for outcome in prompt.outcomes
        ],
    }


class MessagesReply(WorkingReply):
    """Messages of which the long parts were compressed: within the project's limits, and charged."""

    def __init__(
        self, service: MessagesService, caller: Caller, prepared: PreparedMessages, request_id: str
    ) -> None:
        super().__init__(request_id, logger)
        self._service = service
        self._caller = caller
        self._prepared = prepared

    async def work(self, send: Send, client: Client) -> Response:
        compressed = await self._service.compress(self._caller, self._prepared, self.request_id, client)
        body = orjson.dumps(compressed_messages_fields(compressed))
        return Response(body, headers=dict(compressed.headers), media_type="application/json")


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
        return _response(compressed, rate_limit_headers(state))


def _response(compressed: Compressed, headers: dict[str, str]) -> Response:
    return Response(
        orjson.dumps(compressed_fields(compressed)), headers=headers, media_type="application/json"
    )
