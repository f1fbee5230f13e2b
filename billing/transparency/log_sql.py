"""The SQL of the transparency log: its tree, what waits for it, and each growth of it as one transaction.

Only what a signed checkpoint covers is ever read from it: bundles and tiles may hold more than an older head says.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import BindParameter, Connection, bindparam, delete, func, select, text, update

from billing.errors import BillingError
from billing.store.database import let_others_run, use_one_snapshot
from billing.store.log_tables import log_bundles, log_head, log_minutes, log_pending, log_tiles
from billing.store.schema import adjustments, usage_events
from billing.store.statements import inserting, replacing
from billing.transparency.tree import HASH_BYTES, TILE_HEIGHT, TILE_WIDTH, Tree, hashes_of_entries

ENTRY_BYTES = 32
# At most so many of what waits are counted: after an upgrade it is every event.
MOST_COUNTED = 100_000
_DIGITS_OF_TIME = 12
# An adjustment's id, before its time.
_PREFIX = "adj_"
NO_TIME = -1
# Where a table has the ids of its rows.
LOGGED = ((usage_events, usage_events.c.event_id), (adjustments, adjustments.c.id))
_IDS: BindParameter[Any] = bindparam("ids", expanding=True)
_ROWS = tuple(select(table).where(id_.in_(_IDS)) for table, id_ in LOGGED)
_h, _b, _t, _m, _p = log_head.c, log_bundles.c, log_tiles.c, log_minutes.c, log_pending.c
_TAKE = delete(log_pending).where(_p.id.in_(_IDS))


class LogDamaged(BillingError):
    """The tables of the log are not what its checkpoint was signed over."""


class LostRace(BillingError):
    """Another server has grown the tree meanwhile."""


@dataclass(frozen=True, slots=True)
class Head:
    """The tree as it was last signed. `note` is its checkpoint, empty until a server has signed one."""

    size: int
    root: bytes
    note: str
    signed_at: datetime


@dataclass(frozen=True, slots=True)
class Edge:
    """What a growth begins with: the entries of the last bundle, and of each level above the hashes of its last tile,
    where they are not full."""

    size: int
    root: bytes
    entries: bytes
    tiles: Mapping[int, bytes]


@dataclass(frozen=True, slots=True)
class Growth:
    """The tables after a growth, where it changes them."""

    size: int
    root: bytes
    bundles: Mapping[int, bytes]
    tiles: Mapping[tuple[int, int], bytes]


def head(connection: Connection) -> Head:
    return Head(*connection.execute(select(_h.size, _h.root, _h.note, _h.signed_at)).one())


def read_tree(connection: Connection, known: Mapping[int, bytes] | None = None) -> Tree:
    """The tree that the head is of, for as long as the transaction. `known`: the entries of some bundles, which are not
    read again. Its reading raises `LogDamaged`."""
    size = head(connection).size

    def read_tile(level: int, number: int) -> bytes:
        width = width_of_tile(size, level, number)
        if level == 0 and known and number in known:
            let_others_run(connection)
            return hashes_of_entries(_cut(known[number], width * ENTRY_BYTES, f"bundle {number}"))
        return tile(connection, level, number, width)

    return Tree(size, read_tile)


def width_of_tile(size: int, level: int, number: int) -> int:
    """How many hashes it has in a tree of `size` leaves; 0 where there is no such tile."""
    return max(0, min(TILE_WIDTH, (size >> TILE_HEIGHT * level) - number * TILE_WIDTH))


def tile(connection: Connection, level: int, number: int, width: int) -> bytes:
    """Its first `width` hashes. Raises `LogDamaged` where there are fewer."""
    if level == 0:
        return hashes_of_entries(bundle(connection, number, width))
    where = (_t.level == level, _t.number == number)
    found = connection.execute(select(_t.hashes).where(*where)).scalar()
    return _cut(found, width * HASH_BYTES, f"tile {number} of level {level}")


def bundle(connection: Connection, number: int, width: int) -> bytes:
    """Its first `width` entries. Raises `LogDamaged` where there are fewer."""
    found = connection.execute(select(_b.entries).where(_b.number == number)).scalar()
    return _cut(found, width * ENTRY_BYTES, f"bundle {number}")


def piece(connection: Connection, *, level: int, number: int, width: int) -> bytes | None:
    """As `tile`, but of level 0 the entries. None where the tree has fewer, whatever the numbers."""
    if width > width_of_tile(head(connection).size, level, number):
        return None
    return bundle(connection, number, width) if level == 0 else tile(connection, level, number, width)


def minute_of(id_: str) -> int:
    """The minute that the id of an event or adjustment begins with; `NO_TIME` for one that no server made."""
    seconds = time_of(id_)
    return NO_TIME if seconds is None else int(seconds // 60)


def time_of(id_: str) -> float | None:
    """The seconds since 1970 that it begins with, if it does."""
    try:
        return int(id_.removeprefix(_PREFIX)[:_DIGITS_OF_TIME], 16) / 1000
    except ValueError:
        return None


def edge(connection: Connection, of: Head) -> Edge:
    """Raises `LogDamaged`."""
    width = of.size % TILE_WIDTH
    entries = bundle(connection, of.size // TILE_WIDTH, width) if width else b""
    tiles, level, count = {}, 1, of.size >> TILE_HEIGHT
    while count:
        number, width = divmod(count, TILE_WIDTH)
        tiles[level] = tile(connection, level, number, width) if width else b""
        level, count = level + 1, number
    return Edge(of.size, of.root, entries, tiles)


def revision(connection: Connection) -> str:
    """Of the schema."""
    return str(connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one())


def pending_rows(connection: Connection, limit: int) -> tuple[list[Mapping[str, Any]], bool]:
    """Rows that wait for the tree, at most `limit`, in the order of their ids, and whether there may be more. An id
    without a row, which only somebody who deletes rows leaves behind, stays and holds nothing up."""
    after = ""
    while ids := _pending_ids(connection, after, limit):
        rows: dict[str, Mapping[str, Any]] = {}
        for (table, id_), statement in zip(LOGGED, _ROWS, strict=True):
            names = table.columns.keys()
            at = names.index(id_.name)
            for row in connection.execute(statement, {"ids": ids}):
                rows[row[at]] = dict(zip(names, row, strict=True))
        if rows:
            return [rows[one] for one in ids if one in rows], len(ids) == limit
        after = ids[-1]
    return [], False


def _pending_ids(connection: Connection, after: str, limit: int) -> Sequence[str]:
    return connection.scalars(select(_p.id).where(_p.id > after).order_by(_p.id).limit(limit)).all()


def id_of(row: Mapping[str, Any]) -> str:
    """Of a usage event or adjustment."""
    return str(row["id"] if "id" in row else row["event_id"])


@dataclass(frozen=True, slots=True)
class Waiting:
    """What the next growth begins with, in one snapshot. `edge` is None where nothing waits."""

    revision: str
    head: Head
    edge: Edge | None
    rows: Sequence[Mapping[str, Any]]
    has_more: bool


def waiting(connection: Connection, limit: int) -> Waiting:
    """Raises `LogDamaged`."""
    use_one_snapshot(connection)
    of = head(connection)
    rows, has_more = pending_rows(connection, limit)
    return Waiting(revision(connection), of, edge(connection, of) if rows else None, rows, has_more)


@dataclass(frozen=True, slots=True)
class Status:
    """The log at a glance. `pending` is at most `MOST_COUNTED`; `oldest_id` is the least of those that wait."""

    size: int
    pending: int
    oldest_id: str | None


def status(connection: Connection) -> Status:
    some = select(_p.id).order_by(_p.id).limit(MOST_COUNTED).subquery().c
    pending, oldest = connection.execute(select(func.count(), func.min(some.id))).one()
    return Status(head(connection).size, pending, oldest)


def sign(connection: Connection, of: Head, note: str, at: datetime) -> None:
    """Puts a checkpoint in place of one that another key signed, or of none. Raises `LostRace`."""
    _move_head(connection, of, {"note": note, "signed_at": at})


def grow(
    connection: Connection, of: Head, growth: Growth, ids: Sequence[str], *, note: str, at: datetime
) -> None:
    """All of it or nothing: the new leaves are those of `ids`, in this order. Raises `LostRace`."""
    put(connection, of, growth, list(map(minute_of, ids)), note=note, at=at)
    taken = connection.execute(_TAKE, {"ids": ids}).rowcount
    if taken != len(ids):
        raise LostRace(f"{len(ids) - taken} of {len(ids)} ids wait for the log no more")


def put(
    connection: Connection, of: Head, growth: Growth, minutes: Sequence[int], *, note: str, at: datetime
) -> None:
    """The growth itself, whatever waits; `minutes` are those that the ids of its leaves begin with. Raises
    `LostRace`."""
    _move_head(connection, of, {"size": growth.size, "root": growth.root, "note": note, "signed_at": at})
    bundles = [{"number": number, "entries": entries} for number, entries in growth.bundles.items()]
    connection.execute(replacing(connection, log_bundles, "entries"), bundles)
    if growth.tiles:
        tiles = [{"level": one[0], "number": one[1], "hashes": held} for one, held in growth.tiles.items()]
        connection.execute(replacing(connection, log_tiles, "hashes"), tiles)
    places = dict.fromkeys((minute, (of.size + n) // TILE_WIDTH) for n, minute in enumerate(minutes))
    connection.execute(
        inserting(connection.dialect.name, log_minutes).on_conflict_do_nothing(),
        [{"minute": minute, "bundle": number} for minute, number in places],
    )


def _move_head(connection: Connection, of: Head, values: Mapping[str, Any]) -> None:
    moving = update(log_head).where(_h.size == of.size, _h.root == of.root, _h.note == of.note).values(values)
    if connection.execute(moving).rowcount != 1:
        raise LostRace("another server has signed a checkpoint meanwhile")


def _cut(found: bytes | None, length: int, name: str) -> bytes:
    if found is None or len(found) < length:
        raise LogDamaged(f"the transparency log lacks {name}, or a part of it")
    return bytes(found[:length])
