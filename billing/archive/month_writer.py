"""Writes the events of a month into files: of some workspaces each, a page of the ledger at a time."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from itertools import groupby
from pathlib import Path

from billing.archive import month_sql
from billing.archive.event_file import EventWriter
from billing.archive.month_files import EventsFile, digest_of, events_name, whole_file
from billing.archive.month_sql import Month
from billing.rollups.checkpoint_sql import Sum
from billing.store.database import Database

EVENTS_IN_FILE = 5_000_000
PAGE_ROWS = 5000


class MonthWriter:
    """`tell` hears of each file."""

    def __init__(self, database: Database, folder: Path, tell: Callable[[str], None]) -> None:
        self._database = database
        self._folder = folder
        self._tell = tell

    async def write(self, month: Month, sums: Sequence[Sum]) -> list[EventsFile]:
        """In the memory of a page and a group of rows. `sums` say which workspaces there are. Raises
        `ArchiveDamaged`."""
        files = []
        for number, (first, last) in enumerate(ranges_of(sums), 1):
            name = events_name(month.month, number)
            events = await self._write_file(month, self._folder / name, first, last)
            sha256, size = await asyncio.to_thread(digest_of, self._folder / name)
            files.append(EventsFile(name, first, last, events, sha256, size))
            self._tell(f"{month.month}: {name} written")
        return files

    async def _write_file(self, month: Month, path: Path, first: str, last: str) -> int:
        number, after = 0, None
        with whole_file(path) as file, closing(EventWriter(file)) as writer:
            while True:
                read = partial(
                    month_sql.page, month=month, first=first, last=last, after=after, limit=PAGE_ROWS
                )
                rows = [dict(row._mapping) for row in await self._database.read(read)]
                await asyncio.to_thread(writer.add, rows)
                number += len(rows)
                if len(rows) < PAGE_ROWS:
                    break
                after = rows[-1]["event_id"]
            await asyncio.to_thread(writer.end)
        return number


def ranges_of(sums: Sequence[Sum]) -> list[tuple[str, str]]:
    """The first and the last workspace of each file, which has at most `EVENTS_IN_FILE` events unless one workspace has
    more."""
    found: list[tuple[str, str]] = []
    size = 0
    ordered = sorted(sums, key=lambda one: one.workspace_id)
    for workspace_id, its in groupby(ordered, key=lambda one: one.workspace_id):
        events = sum(one.events for one in its)
        if found and size + events <= EVENTS_IN_FILE:
            found[-1], size = (found[-1][0], workspace_id), size + events
        else:
            found.append((workspace_id, workspace_id))
            size = events
    return found
