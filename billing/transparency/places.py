"""Places of many rows in the tree, found by reading each bundle that may have one of them once."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, select

from billing.store.log_tables import log_bundles, log_minutes
from billing.transparency import log_sql
from billing.transparency.leaves import leaf
from billing.transparency.log_sql import ENTRY_BYTES, id_of, minute_of
from billing.transparency.tree import TILE_WIDTH

# Two megabytes of entries.
BUNDLES_AT_ONCE = 256
_m, _b = log_minutes.c, log_bundles.c


def missing(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Ids of those that are not in the tree as they are now."""
    entries = {id_of(row): leaf(row).entry for row in rows}
    found = indices(connection, entries)
    return [id_ for id_ in entries if id_ not in found]


def indices(connection: Connection, entries: Mapping[str, bytes]) -> dict[str, int]:
    """The index of each leaf that is in the tree, by the id of its event or adjustment."""
    wanted = {entry: id_ for id_, entry in entries.items()}
    size, found = log_sql.head(connection).size, {}
    for numbers in _pieces(_bundles_of(connection, entries)):
        bundles = select(_b.number, _b.entries).where(_b.number.in_(numbers))
        for number, held in connection.execute(bundles):
            for place, at in enumerate(range(0, len(held), ENTRY_BYTES), number * TILE_WIDTH):
                id_ = wanted.get(held[at : at + ENTRY_BYTES])
                if id_ is not None and place < size:
                    found[id_] = place
    return found


def _bundles_of(connection: Connection, ids: Mapping[str, Any]) -> list[int]:
    """The bundles that have leaves of the same minutes."""
    found: set[int] = set()
    for minutes in _pieces(sorted({minute_of(id_) for id_ in ids})):
        found.update(connection.scalars(select(_m.bundle).where(_m.minute.in_(minutes))))
    return sorted(found)


def _pieces(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    for at in range(0, len(numbers), BUNDLES_AT_ONCE):
        yield numbers[at : at + BUNDLES_AT_ONCE]
