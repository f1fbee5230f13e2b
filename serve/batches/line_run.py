"""One line of a batch, run as a request of its own: within its project's money, and written down once."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, BinaryIO

import orjson
from starlette.types import Message

from billing.accounts.accounts import Accounts
from billing.accounts.keys import require_route
from billing.batches.batch import ClaimedLine, LineTokens, LostClaim, StorageUnavailable
from billing.batches.batch_store import BatchStore
from billing.batches.file_store import FileFolder
from billing.caller import Caller, PriceTerms
from billing.errors import BillingError, LedgerUnavailable, PricesUnavailable
from billing.labels import labelled
from billing.store.database import Work
from compression.pipeline.errors import CompressorOverloaded, CompressorUnavailable
from models.errors import EngineTimedOut, EngineUnavailable
from serve.batches.endpoints import PREFIX, Endpoints, plain_path
from serve.batches.validation import AskedLine, BadLine, asked_of
from serve.http.auth import route_name
from serve.http.error_dialects import openai_body, openai_problem
from serve.http.errors import STATUSES, Problem, problem_of, unexpected_problem
from serve.http.middleware import fresh_id
from serve.http.replies import Client
from serve.money.admission import RecordTooLarge, recordable
from serve.money.held_request import Receipt
from serve.money.prices import charged_fields
from serve.tracing.request_record import NO_TRACER, Tracer, traced

# Of an error, which may repeat much of what was sent.
MOST_MESSAGE_CHARS = 2000
_GIVEN_UP = {
    "cancelled": ("batch_cancelled", "The batch was cancelled before this request was run."),
    "expired": ("batch_expired", "This request was not run before the batch expired."),
}
log = logging.getLogger("pith.batches")
BATCHES_PATH = "/openai/v1/batches"
# Attempts that may fail by our fault, or for want of money that others hold, before the line has failed.
MOST_ATTEMPTS = 5
LONGEST_PAUSE_S = 60.0
# Nothing was begun: the line waits, however often. What ran out of time was begun: it is tried again as a failure is.
_NOT_BEGUN = (
    LedgerUnavailable,
    PricesUnavailable,
    EngineUnavailable,
    CompressorOverloaded,
    CompressorUnavailable,
    StorageUnavailable,
)
# Another attempt may fare better: our failures, and 402, since money that other requests hold may come free.
_RETRIED = frozenset({402, 429, 500, 502, 503})


def completed_line(custom_id: str, request_id: str, body: bytes) -> str:
    """`body` is the reply's JSON."""
    return _line(custom_id, request_id, {"status_code": 200, "body": orjson.Fragment(body)})


def failed_line(
    custom_id: str, request_id: str, problem: Problem, charged: Mapping[str, Any] | None = None
) -> str:
    """The result of a request that was refused, or failed; `charged`: what it cost nevertheless."""
    told = openai_problem(problem)
    if len(told.message) > MOST_MESSAGE_CHARS:
        told = replace(told, detail=told.message[:MOST_MESSAGE_CHARS] + "…")
    return _line(
        custom_id, request_id, {"status_code": told.status, "body": {**openai_body(told), **(charged or {})}}
    )


def given_up_line(batch_id: str, custom_id: str, number: int, state: str) -> str:
    """The result of a request that was not run to its end."""
    code, message = _GIVEN_UP[state]
    return _dumped(
        {
            "id": f"{batch_id}_line_{number}",
            "custom_id": custom_id,
            "response": None,
            "error": {"code": code, "message": message},
        }
    )


def _line(custom_id: str, request_id: str, response: dict[str, Any]) -> str:
    return _dumped(
        {
            "id": request_id,
            "custom_id": custom_id,
            "response": {"request_id": request_id, **response},
            "error": None,
        }
    )


def _dumped(fields: dict[str, Any]) -> str:
    return orjson.dumps(fields).decode()


@dataclass(frozen=True, slots=True)
class LineRunner:
    """Runner of lines, with its collaborators."""

    store: BatchStore
    folder: FileFolder
    accounts: Accounts
    endpoints: Endpoints
    clock: Callable[[], datetime]
    # Of a project's files, and of the results of its lines until they are in one.
    most_kept_bytes: int = 2**63 - 1
    # Seconds after the first attempt that came to nothing; it doubles.
    first_pause_s: float = 2.0
    tracer: Tracer = NO_TRACER

    async def run(self, claimed: ClaimedLine) -> None:
        """To its end, once, or put back for another attempt. Raises nothing but a cancellation, which puts it back."""
        request_id = f"batch_req_{fresh_id()}"
        try:
            with traced(self.tracer, "batch line") as span:
                span.set("pith.request_id", request_id)
                span.set("http.route", claimed.batch.endpoint)
                await self._ask(claimed, request_id)
        except asyncio.CancelledError:
            await asyncio.shield(asyncio.create_task(self._put_back(claimed, counts=False, wait_s=0)))
            raise
        except LostClaim as lost:
            log.info("%s", lost)
        except Exception as error:
            await self._end_attempt(claimed, request_id, error)

    async def _ask(self, claimed: ClaimedLine, request_id: str) -> None:
        caller = await self._caller(claimed)
        # Before any work is done for it: it would be for nothing.
        await self.store.check_room(claimed.batch.project_id, self.most_kept_bytes)
        asked = await self._asked(claimed)
        endpoint = self.endpoints.get(plain_path(claimed.batch.endpoint))
        if endpoint is None:
            raise BadLine("invalid_endpoint", "This server does not run requests of this kind any more")
        reply = endpoint.ask(labelled(caller, asked.body), asked.body, request_id)
        reply.record = partial(self._record, claimed, request_id)
        await reply.work(_nowhere, Client())

    def _record(
        self, claimed: ClaimedLine, request_id: str, pieces: Iterable[bytes], receipt: Receipt
    ) -> Work[None]:
        """The work is done, so it is charged, even where its result is too large to be kept."""
        custom_id, usage = claimed.line.custom_id, receipt.usage
        tokens = LineTokens(usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens)
        try:
            body = recordable(pieces)
        except RecordTooLarge as error:
            problem = Problem(400, "invalid_request_error", "result_too_large", str(error))
            result = failed_line(custom_id, request_id, problem, charged_fields(receipt))
            return self.store.ending(claimed, "failed", result, tokens)
        return self.store.ending(claimed, "completed", completed_line(custom_id, request_id, body), tokens)

    async def _caller(self, claimed: ClaimedLine) -> Caller:
        """Whoever made the batch, as its key is now: at the batch's prices, and with nobody who waits. Raises
        `InvalidKey` and `RouteNotAllowed`."""
        batch = claimed.batch
        caller = await self.accounts.caller_of(batch.key_id, now=self.clock())
        path = plain_path(batch.endpoint)
        for route in (route_name(BATCHES_PATH), route_name(f"{PREFIX}{path}") or route_name(path)):
            require_route(caller, route)
        terms = PriceTerms(batch.pricing_version, batch.price_ppm)
        return replace(caller, price_terms=terms, background=True)

    async def _asked(self, claimed: ClaimedLine) -> AskedLine:
        content = await asyncio.to_thread(self._read, claimed)
        return asked_of(content)

    def _read(self, claimed: ClaimedLine) -> bytes:
        file: BinaryIO = self.folder.open(claimed.batch.input_file_id, buffered=True)
        with file:
            file.seek(claimed.line.offset)
            return file.read(claimed.line.length)

    async def _end_attempt(self, claimed: ClaimedLine, request_id: str, error: Exception) -> None:
        if isinstance(error, _NOT_BEGUN) and not isinstance(error, EngineTimedOut):
            log.info("line %d of %s waits: %s", claimed.line.number, claimed.batch.id, error)
            await self._put_back(claimed, counts=False, wait_s=4 * self.first_pause_s)
            return
        problem = _problem(claimed, error)
        if problem.status in _RETRIED and claimed.attempts < MOST_ATTEMPTS:
            wait_s = min(self.first_pause_s * 2.0 ** (claimed.attempts - 1), LONGEST_PAUSE_S)
            await self._put_back(claimed, counts=True, wait_s=wait_s)
            return
        try:
            await self.store.fail_line(claimed, failed_line(claimed.line.custom_id, request_id, problem))
        except BillingError as lost:
            log.info(
                "line %d of %s is left to another attempt: %s", claimed.line.number, claimed.batch.id, lost
            )

    async def _put_back(self, claimed: ClaimedLine, *, counts: bool, wait_s: float) -> None:
        """Where the ledger is away, the claim runs out by itself."""
        try:
            await self.store.put_back(claimed, wait_s=wait_s, counts=counts)
        except BillingError as error:
            log.info("line %d of %s is left to expire: %s", claimed.line.number, claimed.batch.id, error)


def _problem(claimed: ClaimedLine, error: Exception) -> Problem:
    if isinstance(error, BadLine):
        return Problem(400, "invalid_request_error", error.code, str(error), error.param)
    if any(kind in STATUSES for kind in type(error).__mro__):
        return problem_of(error)
    log.error("line %d of %s failed unexpectedly", claimed.line.number, claimed.batch.id, exc_info=error)
    return unexpected_problem()


async def _nowhere(message: Message) -> None:
    raise RuntimeError("a line of a batch is not streamed")
