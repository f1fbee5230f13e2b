"""Sends what a retrieval request gave, and ends the work when its client has gone."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

from starlette.responses import Response, StreamingResponse
from starlette.types import Send

from billing.caller import Caller
from billing.store.database import Work
from models.retrieval import Computed
from serve.http.replies import Client, WorkingReply
from serve.money.held_request import Receipt
from serve.money.recorded import Record
from serve.money.service_block import charged_fields
from serve.retrieval.service import PreparedRetrieval, RetrievalService

logger = logging.getLogger("pith.retrieval")

# Writes the body: what was computed, the fields of its charge, and the request's id.
Write = Callable[[Computed, "dict[str, Any]", str], Iterator[bytes]]


class RetrievalReply(WorkingReply):
    """Within the project's limits, and charged before the first byte of the reply leaves."""

    def __init__(
        self,
        service: RetrievalService,
        caller: Caller,
        prepared: PreparedRetrieval,
        request_id: str,
        write: Write,
    ) -> None:
        super().__init__(request_id, logger)
        self._service = service
        self._caller = caller
        self._prepared = prepared
        self._write = write
        # What is written with its settlement.
        self.record: Record | None = None

    async def work(self, send: Send, client: Client) -> Response:
        tokens = self._service.token_terms(self._caller, self._prepared)
        admissions, route = self._service.admissions, self._prepared.route
        async with admissions.admit(self._caller, self.request_id, [tokens], route=route) as admitted:
            record = partial(self._recorded, self.record) if self.record is not None else None
            computed, receipt = await self._service.run(admitted, self._prepared, tokens, client, record)
        headers = admitted.reply_headers(receipt.settlement.status)
        pieces = self._write(computed, charged_fields(receipt), self.request_id)
        return StreamingResponse(_in_turns(pieces), headers=headers, media_type="application/json")

    def _recorded(self, record: Record, computed: Computed, receipt: Receipt) -> Work[None]:
        return record(self._write(computed, charged_fields(receipt), self.request_id), receipt)


async def _in_turns(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Each piece is written when the one before it has been taken; between two, other requests have their turn."""
    for piece in pieces:
        yield piece
        await asyncio.sleep(0)
