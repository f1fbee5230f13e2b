"""`GET /v1/usage/proof`: a month of the key's project as a file that its owner checks without trusting this server."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from starlette.concurrency import iterate_in_threadpool
from starlette.responses import Response
from starlette.types import Send

from billing.books.statement_proof import Bounds, StatementProof, statement_proof
from billing.caller import Caller
from billing.errors import RateLimited
from billing.rate_limits.rate_limits import NO_STATE
from billing.store.database import Database
from billing.store.dates import month_bounds
from billing.transparency.notes import Signer, Verifier
from billing.transparency.witness import until_cosigned
from serve.http.replies import Client, StreamedResponse, WorkingReply
from serve.http.request_body import InvalidBody, Issue

logger = logging.getLogger("pith.account")

# Some 25 MB in memory, while it is sent, and 160 MB of the log that are read.
MOST = Bounds(leaves=20_000, bundles=20_000)
# Of one process; the next ones wait, and then are refused.
AT_ONCE, WAITING = 2, 4
_SIZE = re.compile(r"[1-9][0-9]{0,15}")
PARAMETERS: list[dict[str, Any]] = [
    {
        "name": "month",
        "in": "query",
        "required": True,
        "description": "Calendar month (UTC) that the events were charged to.",
        "schema": {"type": "string", "pattern": "^[0-9]{4}-(0[1-9]|1[0-2])$"},
    },
    {
        "name": "from_size",
        "in": "query",
        "required": False,
        "description": "Leaves of an older checkpoint: the file proves that the log goes on from it.",
        "schema": {"type": "integer", "minimum": 1},
    },
]


@dataclass(frozen=True, slots=True)
class AskedProof:
    month: str
    from_size: int | None


def asked_proof(given: Mapping[str, str]) -> AskedProof:
    """Raises `InvalidBody`, which names the parameter."""
    month, size = given.get("month", ""), given.get("from_size")
    try:
        month_bounds(month)
    except ValueError as error:
        raise _invalid("month", "month must be a month, such as 2026-11") from error
    if size is not None and not _SIZE.fullmatch(size):
        raise _invalid("from_size", "from_size must be a number of leaves")
    return AskedProof(month, None if size is None else int(size))


def _invalid(name: str, message: str) -> InvalidBody:
    return InvalidBody((Issue("value_error", ("query", name), message),))


class Prover:
    """Makes the proofs of projects, few at a time."""

    def __init__(
        self,
        database: Database,
        signer: Signer,
        witness: Verifier | None,
        clock: Callable[[], datetime],
    ) -> None:
        self._database = database
        self._signer = signer
        self._witness = witness
        self._clock = clock
        self._room = asyncio.Semaphore(AT_ONCE)
        # SQLite has two threads that read: one is left for everybody else.
        self._reading = asyncio.Lock()
        self._waiting = 0

    @asynccontextmanager
    async def room(self) -> AsyncIterator[None]:
        """Raises `RateLimited`."""
        if self._waiting >= WAITING:
            raise RateLimited(which="in_flight", limit=AT_ONCE, retry_after_s=5, state=NO_STATE)
        self._waiting += 1
        try:
            await self._room.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._room.release()

    async def pieces(self, caller: Caller, asked: AskedProof) -> Iterator[str]:
        """Raises `NoProof`, `LogDamaged`, `LedgerUnavailable` and `InvalidBody`."""
        make = partial(
            statement_proof,
            workspace=caller.workspace_id,
            month=asked.month,
            project_id=caller.project_id,
            from_size=asked.from_size,
            made_at=self._clock(),
            bounds=MOST,
        )
        await until_cosigned(self._database, self._witness)
        try:
            async with self._reading:
                found: StatementProof = await self._database.read(make)
        except ValueError as error:
            raise _invalid("from_size", str(error)) from error
        return found.pieces(self._signer)


class ProofReply(WorkingReply):
    """The file, made while it is sent: who leaves makes room for the next."""

    def __init__(
        self, prover: Prover, caller: Caller, asked: AskedProof, request_id: str, headers: dict[str, str]
    ) -> None:
        super().__init__(request_id, logger)
        self._prover, self._caller, self._asked, self._limit_headers = prover, caller, asked, headers

    async def work(self, send: Send, client: Client) -> Response | None:
        async with self._prover.room():
            pieces = await self._prover.pieces(self._caller, self._asked)
            stream = StreamedResponse(send, "application/json")
            await stream.start(self._limit_headers)
            async for piece in iterate_in_threadpool(pieces):
                await stream.send(piece.encode())
            await stream.end(b"")
        return None
