"""Places of many rows in the tree, found by reading each bundle that may have one of them once."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, func, select

from billing.errors import NoProof
from billing.store.database import let_others_run
from billing.store.log_tables import log_bundles, log_minutes
from billing.transparency import log_sql
from billing.transparency.leaves import leaf
from billing.transparency.log_sql import ENTRY_BYTES, id_of, minute_of
from billing.transparency.tree import TILE_WIDTH

MINUTES_AT_ONCE = 256
BUNDLES_AT_ONCE = 64
# 32 MB.
KNOWN_BUNDLES = 4096
_m, _b = log_minutes.c, log_bundles.c


@dataclass(slots=True)
class Reading:
    """`left`: so many bundles may be read; None: any number. `known` gets those that have leaves which were looked for,
    by number: a proof of these needs them again."""

    left: int | None = None
    known: dict[int, bytes] = field(default_factory=dict)


def missing(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Ids of those that are not in the tree as they are now."""
    entries = {id_of(row): leaf(row).entry for row in rows}
    found = indices(connection, entries)
    return [id_ for id_ in entries if id_ not in found]


def indices(
    connection: Connection, entries: Mapping[str, bytes], reading: Reading | None = None
) -> dict[str, int]:
    """The index of each leaf that is in the tree, by the id of its event or adjustment. Raises `NoProof` where more
    bundles would be read than may be."""
    wanted = {entry: id_ for id_, entry in entries.items()}
    size, found, reading = log_sql.head(connection).size, dict[str, int](), reading or Reading()
    for number, held in _bundles_of(connection, entries, reading):
        for place in range(min(len(held) // ENTRY_BYTES, size - number * TILE_WIDTH)):
            id_ = wanted.get(held[place * ENTRY_BYTES : (place + 1) * ENTRY_BYTES])
            if id_ is not None:
                found.setdefault(id_, number * TILE_WIDTH + place)
                if len(reading.known) < KNOWN_BUNDLES:
                    reading.known[number] = held
    return found


def _bundles_of(connection: Connection, ids: Iterable[str], reading: Reading) -> Iterator[tuple[int, bytes]]:
    """Those that have leaves of the same minutes."""
    minutes = sorted({minute_of(id_) for id_ in ids})
    for at in range(0, len(minutes), MINUTES_AT_ONCE):
        numbers = select(_m.bundle).where(_m.minute.in_(minutes[at : at + MINUTES_AT_ONCE])).distinct()
        if reading.left is not None:
            reading.left -= connection.execute(
                select(func.count()).select_from(numbers.subquery())
            ).scalar_one()
            if reading.left < 0:
                raise NoProof(
                    "the log is too long to look all of these events up here: ask the operator for the file"
                )
        bundles = select(_b.number, _b.entries).where(_b.number.in_(numbers)).order_by(_b.number)
        for number, held in connection.execution_options(yield_per=BUNDLES_AT_ONCE).execute(bundles):
            let_others_run(connection)
            yield number, held
