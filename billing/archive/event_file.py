"""Files of archived usage events: written as Parquet with every column of the ledger, and read again to prove them."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from heapq import merge
from pathlib import Path
from typing import Any

from sqlalchemy import Boolean, Integer

from billing.errors import ArchiveDamaged
from billing.parquet import rows_of
from billing.rollups.checkpoint_sql import Stretch, Sum
from billing.rollups.event_sums import line_of
from billing.store.schema import usage_events
from billing.store.stored_types import UtcDateTime

Event = dict[str, Any]


def _kind(column_type: Any) -> str:
    if isinstance(column_type, UtcDateTime):
        return "time"
    if isinstance(column_type, Boolean):
        return "boolean"
    return "integer" if isinstance(column_type, Integer) else "text"


COLUMNS = {column.name: _kind(column.type) for column in usage_events.columns}
# Workspace, day, month charged, project, key, model, route.
Key = tuple[str, ...]


@dataclass(slots=True)
class Reread:
    """`days` are what `archived_days` is to have: the sums under their names, in their order. nano-USD, tokens."""

    events: int = 0
    last_settled_at: datetime | None = None
    days: dict[Key, list[int]] = field(default_factory=dict)

    def sums(self) -> dict[tuple[str, str], tuple[int, int, int]]:
        """By workspace and month charged: events, charged, written off."""
        found: dict[tuple[str, str], tuple[int, int, int]] = {}
        for key, sums in self.days.items():
            events, charged, lost = found.get((key[0], key[2]), (0, 0, 0))
            found[key[0], key[2]] = (events + sums[0], charged + sums[4], lost + sums[5])
        return found


def reread(paths: Sequence[Path], stretches: Sequence[Stretch], sums: Iterable[Sum]) -> Reread:
    """Reads the files, in the memory of their sums. Raises `ArchiveDamaged` where their events are not those of the
    stretches, or do not add up to `sums`."""
    found = Reread()
    events = merge(*(rows_of(path, list(COLUMNS)) for path in paths), key=lambda event: event["event_id"])
    ahead = next(events, None)
    for stretch in stretches:
        ahead = _read_stretch(found, stretch, ahead, events)
    if ahead is not None:
        raise ArchiveDamaged(f"event {ahead['event_id']} is in the files, and of no stretch of their month")
    due = {
        (one.workspace_id, one.month): (one.events, one.charged_nano_usd, one.written_off_nano_usd)
        for one in sums
    }
    if found.sums() != due:
        raise ArchiveDamaged("the events of the files add up to other sums than those that were proven")
    return found


def _read_stretch(
    found: Reread, stretch: Stretch, ahead: Event | None, events: Iterator[Event]
) -> Event | None:
    """The first event after it."""
    digest, number = hashlib.sha256(), 0
    while ahead is not None and ahead["event_id"] < (stretch.until_id or ""):
        digest.update(f"{line_of(ahead)}\n".encode())
        _add(found, ahead)
        number += 1
        ahead = next(events, None)
    if (digest.hexdigest(), number) != (stretch.digest, stretch.events):
        raise ArchiveDamaged(
            f"the files' events from id {stretch.from_id or '(the first)'} to {stretch.until_id} are not those that "
            f"were proven: {number}, and {stretch.events} then"
        )
    return ahead


def _add(found: Reread, event: Event) -> None:
    """As the database's trigger adds an event up."""
    settled: datetime = event["settled_at"].astimezone(UTC)
    lost, saved, original = event["written_off_nano_usd"], event["saved_nano_usd"], event["original_tokens"]
    key = (
        event["workspace_id"],
        f"{settled:%Y-%m-%d}",
        event["month"] or f"{settled:%Y-%m}",
        event["project_id"],
        event["key_id"],
        event["model_id"],
        event["route"] or "",
    )
    amounts = (
        1,
        event["prompt_tokens"],
        event["completion_tokens"],
        event["cached_tokens"],
        event["cost_nano_usd"] - lost,
        lost,
        0 if original is None else original - event["prompt_tokens"],
        saved if lost == 0 or saved < 0 else 0,
        event["compression_nano_usd"],
    )
    sums = found.days.setdefault(key, [0] * len(amounts))
    for place, amount in enumerate(amounts):
        sums[place] += amount
    found.events += 1
    found.last_settled_at = max(settled, found.last_settled_at or settled)
