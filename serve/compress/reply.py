"""Sends one compression, for a project or for the demo, and stops waiting for it when its client has gone."""

import logging
from typing import Any

import orjson
from starlette.responses import Response
from starlette.types import Send

from billing.caller import Caller
from compression.pipeline.served import JobTerms
from serve.compress.demo_limits import DemoLimits
from serve.compress.receipt_json import receipt_fields
from serve.compress.service import Compressed, CompressService, PreparedCompression
from serve.http.client_address import client_of
from serve.http.disconnect import Client, WorkingReply
from serve.http.rate_limit_headers import rate_limit_headers

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

    async def work(self, send: Send, client: Client) -> Response:
        tokens = self._service.token_terms(self._caller, self._prepared)
        async with self._service.admissions.admit(self._caller, self.request_id, [tokens]) as admitted:
            compressed = await self._service.compress(admitted, self._prepared, tokens)
        return _response(compressed, admitted.reply_headers(compressed.metering))


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
        async with self._limits.admitted(self._address) as state:
            compressed = await self._service.compress_unmetered(self._prepared, self._terms)
        return _response(compressed, rate_limit_headers(state))


def _response(compressed: Compressed, headers: dict[str, str]) -> Response:
    return Response(
        orjson.dumps(compressed_fields(compressed)), headers=headers, media_type="application/json"
    )
