"""What an archive has of an event, and what is done with one that comes after its month was archived."""

import asyncio
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sqlalchemy import Connection

from billing.accounts import audit_log
from billing.accounts.audit_log import AuditEntry
from billing.archive.event_file import Event
from billing.archive.month_files import Manifest, check_files
from billing.archive.month_files import manifest_of as manifest_of_text
from billing.archive.month_sql import now_of
from billing.errors import ArchiveRefused
from billing.parquet import row_with
from billing.rollups.archived import ArchivedMonth, archived, is_late, manifest_of
from billing.store.database import Database
from billing.store.rollup_tables import late_events

# Of an event's id.
MOST_CHARS = 32


@dataclass(frozen=True, slots=True)
class Found:
    """An archived event, and the file that has it."""

    path: Path
    event: Event


async def find(database: Database, folder: Path, event_id: str) -> Found | None:
    """Raises `ArchiveRefused` where the event's month is not archived, `ArchiveDamaged`, and `LedgerUnavailable`."""
    month = _of(await database.read(archived), event_id)
    for file in (await _manifest(database, month)).files:
        event = await asyncio.to_thread(row_with, folder / file.name, "event_id", event_id)
        if event is not None:
            return Found(folder / file.name, event)
    return None


async def admit(database: Database, folder: Path, event_id: str, *, actor: str) -> None:
    """Lets the ledger take an event of an archived month that the archive does not have: the files are compared with
    what was proven first. Raises as `find`, and `ArchiveRefused` where it has it."""
    month = _of(await database.read(archived), event_id)
    if not month.is_dropped:
        raise ArchiveRefused(f"{month.month} is still being archived: run pith archive first")
    await asyncio.to_thread(check_files, folder, await _manifest(database, month))
    found = await find(database, folder, event_id)
    if found is not None:
        raise ArchiveRefused(
            f"event {event_id} is in {found.path}, and was charged: pith spool drop takes it out"
        )
    await database.write(partial(_admit, event_id=event_id, actor=actor))


async def check_all(database: Database, folder: Path) -> int:
    """Compares every file with what was proven; how many there are. Raises `ArchiveDamaged`."""
    number = 0
    for month in await database.read(archived):
        manifest = await _manifest(database, month)
        await asyncio.to_thread(check_files, folder, manifest)
        number += len(manifest.files)
    return number


async def _manifest(database: Database, month: ArchivedMonth) -> Manifest:
    return manifest_of_text(await database.read(partial(manifest_of, month=month.month)))


def _of(months: list[ArchivedMonth], event_id: str) -> ArchivedMonth:
    for month in months:
        if month.from_id <= event_id < month.until_id and len(event_id) <= MOST_CHARS:
            return month
    raise ArchiveRefused(f"event {event_id[:80]!r} is of no month that is archived")


def _admit(connection: Connection, *, event_id: str, actor: str) -> None:
    if is_late(connection, event_id):
        return
    now = now_of(connection)
    connection.execute(late_events.insert().values(event_id=event_id, admitted_at=now))
    audit_log.record(connection, AuditEntry(now, actor, "archive.admit", None, event_id, {}))
