"""Comparison of the transparency log with the ledger: each event and adjustment is a leaf or waits, under its root."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from sqlalchemy import Connection, func, select

from billing.store.database import Database, use_one_snapshot
from billing.store.log_tables import log_pending
from billing.store.rollup_tables import archived_months
from billing.transparency import log_sql, places
from billing.transparency.log_sql import LOGGED, Head, LogDamaged
from billing.transparency.notes import BadNote
from billing.transparency.notes import checkpoint as parsed
from billing.transparency.tree import TILE_HEIGHT, TILE_WIDTH, over_tile

MOST_NAMED = 1000
ROWS_AT_ONCE = 1000
_m, _p = archived_months.c, log_pending.c


def wrong_counts(connection: Connection, *, events: int, adjustments: int) -> list[str]:
    """In one snapshot with the counts of all events, archived ones among them, and of adjustments: problems of the
    tree's head, and where leaves and what waits are not as many as the rows."""
    head = log_sql.head(connection)
    found = [*_wrong_head(connection, head)]
    pending = connection.execute(select(func.count()).select_from(log_pending)).scalar_one()
    unlogged = select(func.coalesce(func.sum(_m.events), 0)).where(_m.in_log.is_(False))
    due = events + adjustments - int(connection.execute(unlogged).scalar_one())
    if head.size + pending != due:
        found.append(
            f"it has {head.size} leaves and {pending} rows wait, and the ledger has {due} events and adjustments for it"
        )
    return found


def _wrong_head(connection: Connection, head: Head) -> Iterator[str]:
    try:
        if log_sql.read_tree(connection).root() != head.root:
            yield "its tiles are not those of its root"
        if head.note:
            signed = parsed(head.note)
            if (signed.size, signed.root) != (head.size, head.root):
                yield f"its checkpoint is of {signed.size} leaves, and its head of {head.size}, or of another root"
    except (LogDamaged, BadNote) as error:
        yield str(error)


async def wrong_leaves(database: Database) -> list[str]:
    """Reads all of it: at most `MOST_NAMED` problems of tiles, and of rows that are no leaf and do not wait. Raises
    `LedgerUnavailable`."""
    found = await _wrong_tree(database)
    for number in range(len(LOGGED)):
        after = ""
        while len(found) < MOST_NAMED:
            read = partial(_wrong_rows, number=number, after=after)
            problems, last = await database.read(read)
            found += problems
            if last is None:
                break
            after = last
    return found[:MOST_NAMED]


def _wrong_rows(connection: Connection, *, number: int, after: str) -> tuple[list[str], str | None]:
    """Of the next rows of a table, and the last id of these; None: there are no more."""
    use_one_snapshot(connection)
    table, id_ = LOGGED[number]
    statement = select(table).where(id_ > after).order_by(id_).limit(ROWS_AT_ONCE)
    rows: list[Mapping[str, Any]] = [dict(row._mapping) for row in connection.execute(statement)]
    if not rows:
        return [], None
    last: str = rows[-1][id_.name]
    waits = set(connection.scalars(select(_p.id).where(_p.id > after, _p.id <= last)))
    missing = set(places.missing(connection, rows))
    ids = [row[id_.name] for row in rows]
    found = [f"{one} is in it, and waits for it too" for one in ids if one in waits and one not in missing]
    found += [f"{one} is not in it as it is in the ledger" for one in ids if one in missing - waits]
    return found, last


async def _wrong_tree(database: Database) -> list[str]:
    """Every tile is compared with those below it, from the entries up; what is above them all, `wrong_counts` does."""
    size, level = (await database.read(log_sql.head)).size, 1
    while filled := size >> TILE_HEIGHT * level:
        for number in range(-(-filled // TILE_WIDTH)):
            width = log_sql.width_of_tile(size, level, number)
            problem = await database.read(partial(_wrong_tile, level=level, number=number, width=width))
            if problem:
                return [problem]
        level += 1
    return []


def _wrong_tile(connection: Connection, *, level: int, number: int, width: int) -> str | None:
    below = (log_sql.tile(connection, level - 1, number * TILE_WIDTH + at, TILE_WIDTH) for at in range(width))
    try:
        if b"".join(map(over_tile, below)) == log_sql.tile(connection, level, number, width):
            return None
    except LogDamaged as error:
        return str(error)
    return f"tile {number} of level {level} is not over the entries below it"
