"""The sequencer puts what waits for the transparency log into its tree, and signs what the tree is then.

Each step reads, computes in a thread, and writes in one short transaction that does nothing where another server was
faster. Of a step that dies anywhere, nothing or everything is there.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from billing.errors import BillingError
from billing.store.database import Database, PatientWork
from billing.transparency import log_sql
from billing.transparency.leaves import leaf
from billing.transparency.log_sql import Edge, Growth, Head, LogDamaged, LostRace, Waiting, id_of
from billing.transparency.notes import BadNote, Signer, opened
from billing.transparency.notes import checkpoint as parsed
from billing.transparency.tree import HASH_BYTES, TILE_WIDTH, Tree, hashes_of_entries, over_tile

# Eight bundles: on SQLite settlements wait for each step's transaction, so there are few.
LEAVES_AT_ONCE = 8 * TILE_WIDTH
# So that a round ends also after an upgrade, when every event waits.
STEPS_AT_ONCE = 50


class OtherSigner(BillingError):
    """Another server signs this log by another name, or with another key."""


class Sequencer:
    """Of one server; others may be at work on the same ledger. `revision`: the newest of the schema that it knows. A
    newer schema may have columns that a leaf would lack, so nothing is done then. `compute` runs a function where it
    holds up nothing."""

    def __init__(
        self,
        database: Database,
        signer: Signer,
        *,
        revision: str,
        clock: Callable[[], datetime],
        compute: Callable[..., Awaitable[Any]] = asyncio.to_thread,
    ) -> None:
        self._database = database
        self._signer = signer
        self._revision = revision
        self._clock = clock
        self._compute = compute
        # Whether the head was seen under this signature: whoever signs over it then is at work beside this server.
        self._is_signed = False
        self._seen: Head | None = None

    async def once_if_alone(self) -> None:
        """As `once`, where the head is what it was at the last call: who is to put there what waits does not. A log
        that another has signed keeps its name."""
        self._is_signed = True
        head = await self._database.read(log_sql.head)
        if head == self._seen:
            await self.once()
        self._seen = head

    async def once(self) -> None:
        """Until little or nothing waits. Raises `LedgerUnavailable`, `LogDamaged` and `OtherSigner`: the server that
        was started last goes on alone, and the log does not change its name back and forth."""
        for _ in range(STEPS_AT_ONCE):
            try:
                if not await self._step():
                    return
            except LostRace:
                # The other server goes on.
                return

    async def _step(self) -> bool:
        """Whether more may wait."""
        found = await self._database.read(partial(log_sql.waiting, limit=LEAVES_AT_ONCE))
        if found.revision > self._revision:
            return False
        write = await self._compute(self._computed, found)
        if write is not None:
            await self._database.write(PatientWork(partial(write, at=self._clock())))
            self._is_signed = True
        return found.has_more

    def _computed(self, found: Waiting) -> Callable[..., None] | None:
        """The transaction that is due, if one is. Raises `LogDamaged` and `OtherSigner`."""
        is_signed = self._has_signed(found.head)
        if self._is_signed and not is_signed and found.head.note:
            name = found.head.note.partition("\n")[0]
            raise OtherSigner(
                f"another server on this ledger signs the transparency log as {name!r}, this one as "
                f"{self._signer.verifier.name!r}: give all of them one `log.origin` and one pepper, and restart them"
            )
        self._is_signed = is_signed
        if found.edge is not None:
            growth = grown(found.edge, [leaf(row).entry for row in found.rows])
            note = self._signer.checkpoint(growth.size, growth.root)
            ids = [id_of(row) for row in found.rows]
            return partial(log_sql.grow, of=found.head, growth=growth, ids=ids, note=note)
        if is_signed:
            return None
        note = self._signer.checkpoint(found.head.size, found.head.root)
        return partial(log_sql.sign, of=found.head, note=note)

    def _has_signed(self, head: Head) -> bool:
        try:
            checkpoint = parsed(opened(head.note, self._signer.verifier))
        except BadNote:
            return False
        return (checkpoint.size, checkpoint.root) == (head.size, head.root)


def grown(edge: Edge, entries: Sequence[bytes]) -> Growth:
    """The tree with these entries after those that it has. Raises `LogDamaged` where the edge is not that of its root,
    over which nothing may be signed."""
    require_whole(edge)
    size = edge.size + len(entries)
    first, held = edge.size // TILE_WIDTH, edge.entries + b"".join(entries)
    width = TILE_WIDTH * HASH_BYTES
    pieces = [held[at : at + width] for at in range(0, len(held), width)]
    bundles = dict(enumerate(pieces, first))
    tiles: dict[tuple[int, int], bytes] = {}
    for number, piece in bundles.items():
        if len(piece) == width:
            _add(tiles, edge, 1, number, over_tile(hashes_of_entries(piece)))
    return Growth(size, _root(size, edge, bundles, tiles), bundles, tiles)


def require_whole(edge: Edge) -> None:
    """Raises `LogDamaged`."""
    bundles = {edge.size // TILE_WIDTH: edge.entries}
    if _root(edge.size, edge, bundles, {}) != edge.root:
        raise LogDamaged("the transparency log's tiles are not those of its root; nothing more is signed")


def _add(tiles: dict[tuple[int, int], bytes], edge: Edge, level: int, index: int, hash_: bytes) -> None:
    """One more hash at the end of a level, and above it where that fills a tile."""
    number, place = divmod(index, TILE_WIDTH)
    known = tiles.get((level, number)) or (edge.tiles.get(level, b"") if place else b"")
    tiles[level, number] = filled = known + hash_
    if place == TILE_WIDTH - 1:
        _add(tiles, edge, level + 1, number, over_tile(filled))


def _root(size: int, edge: Edge, bundles: dict[int, bytes], tiles: dict[tuple[int, int], bytes]) -> bytes:
    def read_tile(level: int, number: int) -> bytes:
        if level == 0:
            return hashes_of_entries(bundles[number])
        return tiles[level, number] if (level, number) in tiles else edge.tiles[level]

    return Tree(size, read_tile).root()
