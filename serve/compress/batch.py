"""Many compressions in one request: a few at a time, each with its own result or error, and a sum at the end."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import orjson
from starlette.responses import Response
from starlette.types import Send

from billing.caller import Caller
from billing.usage import MeteringStatus
from serve.compress.request import BatchCompressRequest, BatchItem
from serve.compress.service import ROUTE, Compressed, CompressService, PreparedCompression, compressed_fields
from serve.http.errors import Problem, problem_of, unexpected_problem
from serve.http.replies import NDJSON, Client, StreamedResponse
from serve.http.request_body import check_shape
from serve.money.admission import Admitted, ChargedReply

logger = logging.getLogger("pith.compress")


@dataclass(frozen=True, slots=True)
class BatchEntry:
    """One item as it was read: ready to be compressed, or refused already."""

    index: int
    id: str | None
    work: PreparedCompression | Problem


@dataclass(frozen=True, slots=True)
class ItemResult:
    """One item with its outcome."""

    entry: BatchEntry
    outcome: Compressed | Problem

    def fields(self) -> dict[str, Any]:
        entry, outcome = self.entry, self.outcome
        if isinstance(outcome, Problem):
            return {"id": entry.id, "index": entry.index, "status": "error", **outcome.body()}
        fields = compressed_fields(outcome)
        own_id = fields.pop("id")
        if "retained_until" in fields:
            fields["compression_id"] = own_id
        return {"id": entry.id or own_id, "index": entry.index, "status": "ok", **fields}


@dataclass(slots=True)
class Summary:
    """The sums of a batch so far."""

    metering: MeteringStatus
    succeeded: int = 0
    failed: int = 0
    original_tokens: int = 0
    output_tokens: int = 0

    def add(self, outcome: Compressed | Problem) -> None:
        if isinstance(outcome, Problem):
            self.failed += 1
            return
        self.succeeded += 1
        self.original_tokens += outcome.result.receipt.original_tokens
        self.output_tokens += outcome.result.receipt.output_tokens
        if outcome.metering == "degraded":
            self.metering = "degraded"

    def fields(self) -> dict[str, Any]:
        return {
            "items": self.succeeded + self.failed,
            "succeeded": self.succeeded,
            "failed": self.failed,
            "original_tokens": self.original_tokens,
            "output_tokens": self.output_tokens,
            "tokens_saved": self.original_tokens - self.output_tokens,
            "compression_ratio": self.output_tokens / self.original_tokens if self.original_tokens else 1.0,
            "metering": self.metering,
        }


def _entry(service: CompressService, model_id: str, body: BatchCompressRequest, index: int) -> BatchEntry:
    """Each item is checked by itself."""
    raw = body.items[index]
    try:
        item = check_shape(raw, BatchItem)
        return BatchEntry(index, item.id, service.prepare(model_id, item, body))
    except ValueError as error:
        given = raw.get("id") if isinstance(raw, dict) else None
        return BatchEntry(index, given if isinstance(given, str) else None, _item_problem(error, index))


def _item_problem(error: Exception, index: int) -> Problem:
    """The problem that the item's result tells of."""
    try:
        return problem_of(error).within("items", index)
    except KeyError:
        logger.error("item %d failed unexpectedly", index, exc_info=error)
        return unexpected_problem()


class BatchReply(ChargedReply):
    """A batch as one JSON object, or as one line for each item when it is done. The limits count it as one request."""

    def __init__(
        self,
        service: CompressService,
        caller: Caller,
        body: BatchCompressRequest,
        request_id: str,
        *,
        concurrency: int,
        as_lines: bool,
    ) -> None:
        self._service = service
        self._model_id = service.model_id(body.model)
        service.originals.retention.check(body.compression.retain_s if body.compression else None)
        self._entries = [_entry(service, self._model_id, body, index) for index in range(len(body.items))]
        self._tokens = {
            entry.index: service.token_terms(caller, entry.work)
            for entry in self._entries
            if isinstance(entry.work, PreparedCompression)
        }
        terms = list(self._tokens.values())
        super().__init__(service.admissions, caller, request_id, ROUTE, terms, logger)
        self._concurrency = concurrency
        self._as_lines = as_lines
        self._summary = Summary("persisted" if caller.metered else "not_applicable")

    async def work(self, send: Send, client: Client) -> Response | None:
        if not self._as_lines:
            return await super().work(send, client)
        async with self.admitted() as admitted:
            await self._send_lines(admitted, StreamedResponse(send, NDJSON))
        return None

    async def answer(self, admitted: Admitted, client: Client) -> Response:
        results = [result async for result in self._results(admitted)]
        results.sort(key=lambda result: result.entry.index)
        body = {
            "object": "list",
            "model": self._model_id,
            "results": [result.fields() for result in results],
            "summary": self._summary.fields(),
        }
        return Response(
            orjson.dumps(body),
            headers=admitted.reply_headers(self._summary.metering),
            media_type="application/json",
        )

    async def _send_lines(self, admitted: Admitted, stream: StreamedResponse) -> None:
        # The head leaves at once: from here on each item has its own error.
        await stream.start(admitted.reply_headers(self._summary.metering))
        async with aclosing(self._results(admitted)) as results:
            async for result in results:
                await stream.send(_line(result.fields()))
        await stream.end(_line({"object": "compression.summary", "summary": self._summary.fields()}))

    async def _results(self, admitted: Admitted) -> AsyncGenerator[ItemResult, None]:
        """Each item's result when it is there; the next item starts once the last result was taken."""
        waiting = iter(self._entries)
        running: set[asyncio.Task[ItemResult]] = set()
        try:
            while True:
                while len(running) < self._concurrency and (entry := next(waiting, None)) is not None:
                    running.add(asyncio.create_task(self._result(admitted, entry)))
                if not running:
                    return
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in sorted(done, key=lambda task: task.result().entry.index):
                    result = task.result()
                    self._summary.add(result.outcome)
                    yield result
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _result(self, admitted: Admitted, entry: BatchEntry) -> ItemResult:
        if isinstance(entry.work, Problem):
            return ItemResult(entry, entry.work)
        try:
            outcome = await self._service.compress(admitted, entry.work, self._tokens[entry.index])
        except Exception as error:
            return ItemResult(entry, _item_problem(error, entry.index))
        return ItemResult(entry, outcome)


def _line(fields: dict[str, Any]) -> bytes:
    return orjson.dumps(fields) + b"\n"
