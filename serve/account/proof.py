"""`GET /v1/usage/proof`: a month of the key's project as a file that its owner checks without trusting this server."""

import asyncio
import logging
import re
import time
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
from billing.errors import LedgerUnavailable, RateLimited
from billing.rate_limits.rate_limits import NO_STATE
from billing.store.database import Database, Work
from billing.transparency.cosigned import PATIENCE_S, is_cosigned, read_cosigned
from billing.transparency.notes import Signer, Verifier
from serve.account.response import invalid_parameter
from serve.http.replies import Client, StreamedResponse, WorkingReply

logger = logging.getLogger("pith.account")

# Some 25 MB in memory, while it is sent, and 24 MB of the log, whose hashing takes most of a second.
MOST = Bounds(leaves=20_000, bundles=3000)
# Of one process; the next ones wait, and then are refused.
AT_ONCE, WAITING = 2, 4
# How long one is waited for, with those before it.
ANSWER_S = 60.0
# A witness that was waited for in vain is not waited for again until then.
WITHOUT_WITNESS_S = 60.0
_MONTH = re.compile(r"2[0-9]{3}-(0[1-9]|1[0-2])")
_SIZE = re.compile(r"[1-9][0-9]{0,15}")
PARAMETERS: list[dict[str, Any]] = [
    {
        "name": "month",
        "in": "query",
        "required": True,
        "description": "Calendar month (UTC) that the events were charged to.",
        "schema": {"type": "string", "pattern": f"^{_MONTH.pattern}$"},
    },
    {
        "name": "from_size",
        "in": "query",
        "required": False,
        "description": "Leaves of an older checkpoint: the file proves that the log goes on from it.",
        "schema": {"type": "integer", "minimum": 1, "maximum": 10**16 - 1},
    },
]


@dataclass(frozen=True, slots=True)
class AskedProof:
    month: str
    from_size: int | None


def asked_proof(given: Mapping[str, str]) -> AskedProof:
    """Raises `InvalidBody`, which names the parameter."""
    month, size = given.get("month", ""), given.get("from_size")
    if not _MONTH.fullmatch(month):
        raise invalid_parameter("month", "month must be a month, such as 2026-11")
    if size is not None and not _SIZE.fullmatch(size):
        raise invalid_parameter("from_size", "from_size must be a number of leaves")
    return AskedProof(month, None if size is None else int(size))


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
        self._waiting = 0
        # SQLite has two threads that read: one is left for everybody else.
        self._turn = asyncio.Lock()
        # What has the turn: the event loop itself does not keep it.
        self._reading: asyncio.Task[StatementProof] | None = None
        self._ask_witness_at = 0.0

    @asynccontextmanager
    async def room(self) -> AsyncIterator[None]:
        """For one that is made and sent. Raises `RateLimited`."""
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
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._turn.acquire()
                # Who waits for it may leave, but its thread goes on, and the next one waits for that.
                self._reading = asyncio.create_task(self._read(make))
                # Nobody may be there to hear of its error.
                self._reading.add_done_callback(lambda task: task.cancelled() or task.exception())
                found = await asyncio.shield(self._reading)
        except TimeoutError as error:
            raise LedgerUnavailable(f"the ledger gave no proof within {ANSWER_S:.0f} s") from error
        except ValueError as error:
            raise invalid_parameter("from_size", str(error)) from error
        return found.pieces(self._signer)

    async def _read(self, make: Work[StatementProof]) -> StatementProof:
        """Gives its turn back when it has ended."""
        try:
            is_asked = time.monotonic() >= self._ask_witness_at
            patience_s = PATIENCE_S if is_asked else 0.0
            found = await read_cosigned(self._database.read, make, self._witness, patience_s=patience_s)
            if self._witness and is_asked and not is_cosigned(found.checkpoint, self._witness):
                self._ask_witness_at = time.monotonic() + WITHOUT_WITNESS_S
            return found
        finally:
            self._turn.release()


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
