"""Writes one original in short steps, so that the database's other work goes on between them."""

import asyncio
from contextlib import suppress

from billing.errors import BillingError
from billing.originals.original_sql import Chunk, Head
from billing.originals.original_store import OriginalStore
from serve.http.request_id import fresh_id
from serve.originals.sealing import SURROGATES, Sealer, chunks_of
from serve.originals.turns import Turns

# A step has as many chunks as come to this much ciphertext: 32 + 64 KiB at the most.
STEP_BYTES = 32 * 1024
STEP_CHUNKS = 16
# How often, and how many times, to check whether another writer of the same original has finished.
BUSY_S = 0.05
BUSY_TRIES = 20


class OriginalWriter:
    """The writes of all requests of this process. Its methods raise what those of `OriginalStore` raise."""

    def __init__(self, store: OriginalStore, *, pepper: bytes, most_bytes: int) -> None:
        self._store = store
        self._pepper = pepper
        self._most_bytes = most_bytes
        # Requests take turns, step by step.
        self._turns = Turns()
        self._ending: set[asyncio.Task[None]] = set()

    async def extend(self, project_id: str, ids: list[str], retain_s: int) -> dict[str, float]:
        """Extends the stored ones. Returns when each of them expires."""
        async with self._turns.turn():
            return await self._store.extend(project_id, ids, retain_s)

    async def write(self, project_id: str, id_: str, text: str, *, retain_s: int) -> float | None:
        """Until when it is kept. None where another writer of the same original, or this one, takes too long."""
        size = len(text.encode(errors=SURROGATES))
        head = Head(project_id, id_, fresh_id(), len(text), chunks_of(len(text)), size)
        sealer = Sealer(self._pepper, head)
        chunks = await self._sealed(sealer, text, 0)
        try:
            begun, until = await self._begun(head, chunks, retain_s)
            if begun:
                until = await self._rest(head, sealer, text, len(chunks), retain_s)
        except BaseException:
            # The client has left, or the time is over, or the database failed.
            self._abandon(head)
            raise
        return until

    async def _rest(self, head: Head, sealer: Sealer, text: str, written: int, retain_s: int) -> float | None:
        while written < head.chunks:
            chunks = await self._sealed(sealer, text, written)
            async with self._turns.turn():
                await self._store.add(head, chunks)
            written += len(chunks)
        async with self._turns.turn():
            return await self._store.finish(head, retain_s=retain_s)

    async def _begun(self, head: Head, chunks: list[Chunk], retain_s: int) -> tuple[bool, float | None]:
        """Writes the first chunks. Whether it has begun and has more, or else until when it is kept."""
        for _ in range(BUSY_TRIES):
            async with self._turns.turn():
                step = await self._store.begin(head, chunks, retain_s=retain_s, most_bytes=self._most_bytes)
            if step.begun == "begun":
                return step.until is None, step.until
            if step.begun == "expired":
                await self._store.delete_rest(head.project_id, head.id)
                continue
            await asyncio.sleep(BUSY_S)
            known = await self.extend(head.project_id, [head.id], retain_s)
            if head.id in known:
                return False, known[head.id]
        return False, None

    def _abandon(self, head: Head) -> None:
        task = asyncio.create_task(self._abandoned(head))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _abandoned(self, head: Head) -> None:
        # If this fails too, the unfinished original expires within a minute.
        with suppress(BillingError):
            await self._store.abandon(head)

    async def _sealed(self, sealer: Sealer, text: str, first: int) -> list[Chunk]:
        return await asyncio.to_thread(sealer.seal, text, first, STEP_CHUNKS, STEP_BYTES)
