"""Keeps originals of compressed texts for a while, and gives slices of them back."""

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from billing.caller import Caller
from billing.errors import LedgerUnavailable, OriginalsFull, RowRefused, UnknownOriginal
from billing.originals.original_sql import Head
from billing.originals.original_store import OriginalStore
from serve.metrics.background import OriginalMetrics
from serve.originals.retention import Retention
from serve.originals.writer import CHUNK_CHARACTERS, OriginalWriter, Sealer, Unreadable

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
