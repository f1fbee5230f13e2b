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
from billing.transparency.notes import Signer, Verifier
from billing.transparency.witness import PATIENCE_S, is_cosigned, read_cosigned
from serve.http.replies import Client, StreamedResponse, WorkingReply
from serve.http.request_body import InvalidBody, Issue

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
        raise _invalid("month", "month must be a month, such as 2026-11")
    if size is not None and not _SIZE.fullmatch(size):
        raise _invalid("from_size", "from_size must be a number of leaves")
    return AskedProof(month, None if size is None else int(size))


def _invalid(name: str, message: str) -> InvalidBody:
    return InvalidBody((Issue("value_error", ("query", name), message),))


@dataclass(slots=True, eq=False)
class Place:
    """Of one of those that are made at once."""

    reading: asyncio.Task[Any] | None = None

    def release(self, what: asyncio.Semaphore | asyncio.Lock) -> None:
        """Now, or when what was begun is read: who waits for it may leave, but its thread goes on."""
        if self.reading is None or self.reading.done():
            what.release()
        else:
            self.reading.add_done_callback(lambda _: what.release())


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
        # The event loop itself does not keep them.
        self._tasks: set[asyncio.Task[Any]] = set()
        self._ask_witness_at = 0.0

    @asynccontextmanager
    async def room(self) -> AsyncIterator[Place]:
        """Raises `RateLimited`."""
        if self._waiting >= WAITING:
            raise RateLimited(which="in_flight", limit=AT_ONCE, retry_after_s=5, state=NO_STATE)
        self._waiting += 1
        try:
            await self._room.acquire()
        finally:
            self._waiting -= 1
        place = Place()
        try:
            yield place
        finally:
            place.release(self._room)

    async def pieces(self, caller: Caller, asked: AskedProof, place: Place) -> Iterator[str]:
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
                found = await self._found(make, place)
        except TimeoutError as error:
            raise LedgerUnavailable(f"the ledger gave no proof within {ANSWER_S:.0f} s") from error
        except ValueError as error:
            raise _invalid("from_size", str(error)) from error
        return found.pieces(self._signer)

    async def _found(self, make: Work[StatementProof], place: Place) -> StatementProof:
        await self._reading.acquire()
        try:
            is_asked = time.monotonic() >= self._ask_witness_at
            read, patience_s = partial(self._read, place=place), PATIENCE_S if is_asked else 0.0
            found = await read_cosigned(read, make, self._witness, patience_s=patience_s)
        finally:
            place.release(self._reading)
        if self._witness and is_asked and not is_cosigned(found.checkpoint, self._witness):
            self._ask_witness_at = time.monotonic() + WITHOUT_WITNESS_S
        return found

    async def _read(self, work: Work[Any], *, place: Place) -> Any:
        place.reading = task = asyncio.create_task(self._database.read(work))
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # Nobody may be there to hear of it.
            task.exception()


class ProofReply(WorkingReply):
    """The file, made while it is sent: who leaves makes room for the next."""

    def __init__(
        self, prover: Prover, caller: Caller, asked: AskedProof, request_id: str, headers: dict[str, str]
    ) -> None:
        super().__init__(request_id, logger)
        self._prover, self._caller, self._asked, self._limit_headers = prover, caller, asked, headers

    async def work(self, send: Send, client: Client) -> Response | None:
        async with self._prover.room() as place:
            pieces = await self._prover.pieces(self._caller, self._asked, place)
            stream = StreamedResponse(send, "application/json")
            await stream.start(self._limit_headers)
            async for piece in iterate_in_threadpool(pieces):
                await stream.send(piece.encode())
            await stream.end(b"")
        return None
