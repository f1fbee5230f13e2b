"""Originals of compressed texts: their bounds, their writing in sealed chunks, and their slices."""

import asyncio
import logging
import re
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from billing.caller import Caller
from billing.errors import BillingError, LedgerUnavailable, OriginalsFull, RowRefused, UnknownOriginal
from billing.originals.original_sql import Chunk, Head
from billing.originals.original_store import OriginalStore
from models.errors import InvalidField
from serve.http.middleware import fresh_id
from serve.metrics.background import OriginalMetrics

# Thirty years: what a request's shape takes. A server's configuration allows less.
MAX_RETAIN_S = 10**9
RETAIN_S_FIELD = ("compression", "retain_s")
BYTES_PER_MB = 2**20


@dataclass(frozen=True, slots=True)
class Retention:
    """The longest that a request may ask for, in seconds, and the bytes that one project's originals may have
    together."""

    max_s: int
    most_bytes: int

    def check(self, retain_s: int | None, loc: tuple[str | int, ...] = RETAIN_S_FIELD) -> None:
        """Raises `InvalidField` (422) at `loc` below the body's root for more than the configuration allows."""
        if retain_s is None or retain_s <= self.max_s:
            return
        allowed = f"this server keeps originals for {self.max_s} seconds at the most"
        message = allowed if self.max_s else "this server keeps no originals"
        raise InvalidField(loc, message, kind="less_than_equal")


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


log = logging.getLogger("pith.originals")

ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
# How long a request waits for its originals. Those not written by then are given up.
KEEP_S = 5.0
# After the database failed: until then no request waits for it, and nothing is kept.
PAUSE_S = 5.0
# SQLite has two threads that read. The other one is for keys and prices.
READS_AT_ONCE = 1
# What one read of the database brings: a megabyte of UTF-8 at the most.
READ_CHUNKS = 16


@dataclass(frozen=True, slots=True)
class Original:
    """A text to keep. Its id, of `ID`'s form, names this text alone: under a known id nothing is written again."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Kept:
    """When each original expires, by id, in Unix seconds. One that could not be kept is missing."""

    until: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Slice:
    """The characters from `start` to before `end` of an original that has `length` of them."""

    id: str
    start: int
    end: int
    length: int
    text: str


@dataclass(slots=True)
class _Keeping:
    """One call of `keep`, which may be ended at any point."""

    project_id: str
    texts: Mapping[str, str]
    retain_s: int
    until: dict[str, int] = field(default_factory=dict)
    known: int = 0
    full: int = 0
    answered: bool = False


class Originals:
    """The originals of all projects. `pepper` is the server's secret, without which none can be read."""

    def __init__(
        self,
        store: OriginalStore,
        *,
        pepper: bytes,
        retention: Retention,
        metrics: OriginalMetrics,
        keep_s: float = KEEP_S,
    ) -> None:
        self.retention = retention
        self._store = store
        self._pepper = pepper
        self._metrics = metrics
        self._keep_s = keep_s
        self._writer = OriginalWriter(store, pepper=pepper, most_bytes=retention.most_bytes)
        self._reads = asyncio.Semaphore(READS_AT_ONCE)
        self._again_at = 0.0

    async def keep(self, caller: Caller, originals: Sequence[Original], *, retain_s: int) -> Kept:
        """Keeps these for `retain_s` seconds from now, and those that are there already at least that long.

        A database that fails and a project without room are no errors: what could not be kept, within `keep_s`, is
        not in the result. Raises `ValueError` for an id that is none.
        """
        if bad := [each.id for each in originals if not ID.fullmatch(each.id)]:
            raise ValueError(f"not an original's id: {bad[0]!r}")
        texts = {each.id: each.text for each in originals}
        keeping = _Keeping(caller.project_id, texts, min(retain_s, self.retention.max_s))
        loop = asyncio.get_running_loop()
        if texts and keeping.retain_s > 0 and loop.time() >= self._again_at:
            try:
                async with asyncio.timeout(self._keep_s):
                    await self._keep(keeping)
            except (LedgerUnavailable, TimeoutError) as error:
                if not keeping.answered:
                    self._again_at = loop.time() + PAUSE_S
                log.warning("originals of project %s are not kept: %s", caller.project_id, error or "timeout")
        self._metrics.keep(
            known=keeping.known,
            full=keeping.full,
            kept=len(keeping.until) - keeping.known,
            failed=len(texts) - len(keeping.until) - keeping.full,
        )
        return Kept(keeping.until)

    async def read(self, caller: Caller, id: str, start: int = 0, end: int | None = None) -> Slice:
        """The slice by characters, cut to the text that there is; `end` None: to its end.

        Raises `UnknownOriginal`, also for another project's, and `LedgerUnavailable`.
        """
        try:
            head = await self._head(caller.project_id, id)
            start = min(max(start, 0), head.characters)
            end = head.characters if end is None else min(max(end, start), head.characters)
            text = await self._text(head, start, end)
        except UnknownOriginal:
            self._metrics.read("unknown")
            raise
        self._metrics.read("served")
        return Slice(id, start, end, head.characters, text)

    async def _keep(self, keeping: _Keeping) -> None:
        known = await self._writer.extend(keeping.project_id, list(keeping.texts), keeping.retain_s)
        keeping.answered, keeping.known = True, len(known)
        keeping.until.update({id_: int(moment) for id_, moment in known.items()})
        for id_, text in keeping.texts.items():
            if id_ not in known:
                await self._keep_one(keeping, id_, text)

    async def _keep_one(self, keeping: _Keeping, id_: str, text: str) -> None:
        try:
            until = await self._writer.write(keeping.project_id, id_, text, retain_s=keeping.retain_s)
        except OriginalsFull as error:
            keeping.full += 1
            log.info("original %s of project %s is not kept: %s", id_, keeping.project_id, error)
        except RowRefused as error:
            # Deleted while it was written, because the operator said so.
            log.warning("original %s of project %s is not kept: %s", id_, keeping.project_id, error)
        else:
            if until is not None:
                keeping.until[id_] = int(until)

    async def _head(self, project_id: str, id_: str) -> Head:
        head = await self._store.find(project_id, id_) if ID.fullmatch(id_) else None
        if head is None:
            raise UnknownOriginal
        return head

    async def _text(self, head: Head, start: int, end: int) -> str:
        """Raises `UnknownOriginal` where it is deleted meanwhile, or cannot be decrypted."""
        sealer = Sealer(self._pepper, head)
        first, last = start // CHUNK_CHARACTERS, (end - 1) // CHUNK_CHARACTERS
        pieces: list[str] = []
        for at in range(first, last + 1, READ_CHUNKS):
            upto = min(at + READ_CHUNKS - 1, last)
            async with self._reads:
                chunks = await self._store.chunks(head, at, upto)
            if len(chunks) <= upto - at:
                raise UnknownOriginal
            pieces.append(await asyncio.to_thread(_opened, sealer, at, chunks))
        before = first * CHUNK_CHARACTERS
        return "".join(pieces)[start - before : end - before]


def _opened(sealer: Sealer, first: int, chunks: list[bytes]) -> str:
    try:
        return "".join(sealer.open(first, chunks))
    except Unreadable as error:
        # Another pepper, or a database that was changed: for the caller it is not there.
        log.error("%s", error)
        raise UnknownOriginal from None
