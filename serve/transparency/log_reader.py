"""Reads checkpoint and tiles of the transparency log for whoever asks, at a cost that stays small however many do."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from billing.errors import LedgerUnavailable
from billing.store.database import Database
from billing.transparency import log_sql
from billing.transparency.log_sql import Head
from billing.transparency.tree import HASH_BYTES, TILE_WIDTH

# So old a checkpoint may be that another process has signed anew meanwhile.
KEPT_S = 1.0
# Of 8 KiB each.
KEPT_TILES = 256
# How long one waits for those before it: what requests that are paid for need of the ledger goes on beside one reading.
PATIENCE_S = 2.0


class LogReader:
    """Of one process. One question at a time goes to the ledger, and full tiles, which never change, are kept. Methods
    raise `LedgerUnavailable` and `LogDamaged`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._turn = asyncio.Lock()
        self._head: Head | None = None
        self._read_at = 0.0
        # By level and number; of level 0 the entries.
        self._kept: OrderedDict[tuple[int, int], bytes] = OrderedDict()

    async def checkpoint(self) -> str | None:
        """The signed note. None: nothing was signed yet."""
        return (await self._known_head()).note or None

    async def _known_head(self) -> Head:
        if head := self._fresh_head():
            return head
        async with self._alone():
            # Those who waited meanwhile find what the first has read.
            if head := self._fresh_head():
                return head
            self._head = await self._database.read(log_sql.head)
            self._read_at = asyncio.get_running_loop().time()
            return self._head

    def _fresh_head(self) -> Head | None:
        return self._head if asyncio.get_running_loop().time() - self._read_at < KEPT_S else None

    async def piece(self, level: int, number: int, width: int) -> bytes | None:
        """The first `width` hashes of a tile, of level 0 the entries. None where the tree has fewer."""
        key = (level, number)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key][: width * HASH_BYTES]
        async with self._alone():
            read = partial(log_sql.piece, level=level, number=number, width=width)
            found = await self._database.read(read)
        if found is not None and width == TILE_WIDTH:
            self._kept[key] = found
            if len(self._kept) > KEPT_TILES:
                self._kept.popitem(last=False)
        return found

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._turn.acquire()
        except TimeoutError as error:
            raise LedgerUnavailable("too many read the transparency log at once") from error
        try:
            yield
        finally:
            self._turn.release()
