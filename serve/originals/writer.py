"""Writes an original: in encrypted chunks, in short steps between which the database's other work goes on."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from billing.errors import BillingError
from billing.originals.original_sql import Chunk, Head
from billing.originals.original_store import OriginalStore
from serve.http.request_id import fresh_id

# 64 KiB of UTF-8 at the most. By characters, so that a slice is found without reading what is before it.
CHUNK_CHARACTERS = 16_384
KEY_BYTES = 32
NONCE_BYTES = 12
# Changes with anything about how a chunk is made.
PURPOSE = b"pith originals 1"
# The fastest, and nearly as small as the best (docs/adr/0016-originals-on-demand.md).
ZLIB_LEVEL = 1
# Lone surrogates are in no text that came as JSON; should one come another way, it is still a text.
SURROGATES = "surrogatepass"


class Unreadable(Exception):
    """A chunk is not the one that was written here: another pepper, or a changed database."""


def chunks_of(characters: int) -> int:
    """The number of a text's chunks; an empty one has one."""
    return max(1, -(-characters // CHUNK_CHARACTERS))


class Sealer:
    """Seals and opens the chunks of one original. Both are work for a thread."""

    def __init__(self, pepper: bytes, head: Head) -> None:
        self._head = head
        # The generation is 128 random bits, so no two writings share a key, and chunks may be numbered for nonces.
        info = PURPOSE + b"\0" + head.project_id.encode()
        key = HKDF(SHA256(), KEY_BYTES, salt=head.generation.encode(), info=info).derive(pepper)
        self._cipher = AESGCM(key)

    def seal(self, text: str, first: int, most: int, enough_bytes: int) -> list[Chunk]:
        """The chunks of `text` from number `first` on: until they have `enough_bytes` together, and `most` at most."""
        sealed: list[Chunk] = []
        size = 0
        for number in range(first, min(first + most, self._head.chunks)):
            chunk = text[number * CHUNK_CHARACTERS : (number + 1) * CHUNK_CHARACTERS]
            packed = zlib.compress(chunk.encode(errors=SURROGATES), ZLIB_LEVEL)
            sealed.append((number, self._cipher.encrypt(_nonce(number), packed, self._bound_to(number))))
            size += len(sealed[-1][1])
            if size >= enough_bytes:
                break
        return sealed

    def open(self, first: int, chunks: list[bytes]) -> Iterator[str]:
        """The texts of chunks, the first of which has number `first`. Raises `Unreadable`."""
        for number, sealed in enumerate(chunks, first):
            try:
                packed = self._cipher.decrypt(_nonce(number), sealed, self._bound_to(number))
            except InvalidTag as error:
                raise Unreadable(f"chunk {number} of original {self._head.id} cannot be decrypted") from error
            yield zlib.decompress(packed).decode(errors=SURROGATES)

    def _bound_to(self, number: int) -> bytes:
        """The data that a chunk is authenticated with: moved to another place, it cannot be opened."""
        head = self._head
        # No NUL is in an id, so no two names come to the same bytes.
        parts = (head.project_id, head.id, head.generation, str(head.characters), str(number))
        return b"\0".join(part.encode() for part in parts)


def _nonce(number: int) -> bytes:
    return number.to_bytes(NONCE_BYTES, "big")


# The longest pause, however long the write took.
LONGEST_PAUSE_S = 0.1


class Turns:
    """Writes wait for each other, and pause as long as they took: the slower the database, the fewer the writes."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(1)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Turns come in order of arrival. The next one waits for the pause after this one."""
        await self._free.acquire()
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            yield
        finally:
            loop.call_later(min(loop.time() - began, LONGEST_PAUSE_S), self._free.release)


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
