"""Places of many rows in the tree, found without reading a bundle for each of them."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, select

from billing.store.log_tables import log_bundles, log_minutes
from billing.transparency import log_sql
from billing.transparency.leaves import leaf
from billing.transparency.log_sql import ENTRY_BYTES, id_of, minute_of
from billing.transparency.tree import TILE_WIDTH

# Rows whose ids follow one another share bundles.
KEPT_BUNDLES = 512
_m, _b = log_minutes.c, log_bundles.c


class Places:
    """Call it for rows in the order of their ids."""

    def __init__(self) -> None:
        # The index of each entry, by bundle. Only full ones, which never change.
        self._kept: OrderedDict[int, dict[bytes, int]] = OrderedDict()

    def missing(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> list[str]:
        """Ids of those that are not in the tree as they are now."""
        entries = {id_of(row): leaf(row).entry for row in rows}
        found = self.indices(connection, entries)
        return [id_ for id_ in entries if id_ not in found]

    def indices(self, connection: Connection, entries: Mapping[str, bytes]) -> dict[str, int]:
        """The index of each leaf that is in the tree, by the id of its event or adjustment."""
        numbers = self._numbers(connection, {minute_of(id_) for id_ in entries})
        bundles = self._bundles(connection, {number for some in numbers.values() for number in some})
        size, found = log_sql.head(connection).size, {}
        for id_, entry in entries.items():
            for number in numbers.get(minute_of(id_), ()):
                index = bundles[number].get(entry)
                if index is not None and index < size:
                    found[id_] = index
        return found

    def _numbers(self, connection: Connection, minutes: set[int]) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        statement = select(_m.minute, _m.bundle).where(_m.minute.in_(sorted(minutes)))
        for minute, number in connection.execute(statement):
            found.setdefault(minute, []).append(number)
        return found

    def _bundles(self, connection: Connection, numbers: set[int]) -> Mapping[int, Mapping[bytes, int]]:
        found = {number: self._kept[number] for number in numbers if number in self._kept}
        lacking = sorted(numbers - found.keys())
        for number, entries in connection.execute(
            select(_b.number, _b.entries).where(_b.number.in_(lacking)) if lacking else _NONE
        ):
            found[number] = dict(_by_entry(entries, number * TILE_WIDTH))
            if len(found[number]) == TILE_WIDTH:
                self._kept[number] = found[number]
        while len(self._kept) > KEPT_BUNDLES:
            self._kept.popitem(last=False)
        return found | {number: {} for number in numbers - found.keys()}


_NONE = select(_b.number, _b.entries).where(_b.number < 0)


def _by_entry(entries: bytes, first: int) -> Iterable[tuple[bytes, int]]:
    for place, at in enumerate(range(0, len(entries), ENTRY_BYTES)):
        yield entries[at : at + ENTRY_BYTES], first + place
