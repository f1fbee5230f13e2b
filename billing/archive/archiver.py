"""Archives the months that the policy gives up, one after the other, oldest first; each step can be done again.

Whatever dies between two steps, the next run goes on there. Until the files were read again and found to have every
event, nothing is deleted; from the moment on at which events no longer count, what is kept of them does."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import astuple, dataclass
from functools import partial
from itertools import groupby, islice
from pathlib import Path

from sqlalchemy import Connection

from billing.accounts import audit_log
from billing.accounts.audit_log import AuditEntry
from billing.archive import month_sql
from billing.archive.month_files import (
    COLUMNS,
    Event,
    EventsFile,
    Manifest,
    Reread,
    alone,
    check_files,
    digest_of,
    events_name,
    events_of,
    manifest_of,
    require_own,
    reread,
    whole_file,
    write_manifest,
)
from billing.archive.month_sql import Month, drop_table, now_of, tables_of
from billing.books.proof import WAIT_S, WAITS, prove
from billing.books.statement_proof import archived_parts
from billing.errors import ArchiveRefused, LedgerUnavailable
from billing.ledger.spool import Spool
from billing.parquet import Row, RowWriter, rows_with
from billing.rollups import checkpoint_sql
from billing.rollups.archived import (
    ArchivedMonth,
    archived,
    digest_of_sums,
    is_late,
    sealed_until,
    stored_manifest,
)
from billing.rollups.checkpoint_sql import Sum
from billing.store.database import Database, PatientWork
from billing.store.rollup_tables import late_events
from billing.transparency import places

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
        with whole_file(path) as file, closing(RowWriter(file, COLUMNS)) as writer:
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


def _next_of(rows: Iterator[Event]) -> list[Event]:
    return list(islice(rows, PAGE_ROWS))


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


@dataclass(frozen=True, slots=True)
class Planned:
    """A month that the policy gives up. `events` are in the ledger now; `state`: how far a run before this came; None:
    not begun."""

    month: str
    events: int
    state: str | None = None


async def planned(database: Database, keep_months: int | None) -> list[Planned]:
    """Plan of a run if everything is proven by then, oldest first; None keeps all. Raises `LedgerUnavailable`."""
    found, after = list[Planned](), await database.read(sealed_until)
    if begun := await database.read(month_sql.unfinished):
        left = await database.read(partial(month_sql.count_events, month=begun))
        found.append(Planned(begun.month, left, begun.state))
    if keep_months is None:
        return found
    while month := await database.read(partial(month_sql.due, after=after, keep_months=keep_months)):
        events = await database.read(partial(month_sql.count_events, month=month))
        found.append(Planned(month.month, events))
        after = month.until_id
    return found


ROWS_AT_ONCE = 1000
TRIES = 20
Tell = Callable[[str], None]


class Archiver:
    """Of one ledger, into `folder`. Methods raise `LedgerUnavailable`, `ArchiveRefused` and `ArchiveDamaged`."""

    def __init__(
        self, database: Database, spool: Spool, folder: Path, *, actor: str, tell: Tell = lambda step: None
    ) -> None:
        """`tell` hears of each step that was done."""
        self._database = database
        self._spool = spool
        self._folder = folder
        self._actor = actor
        self._tell = tell

    async def archive(self, keep_months: int) -> list[str]:
        """Archives what is due, after what was begun; returns the months."""
        done = []
        with alone(self._folder):
            while month := await self._next(keep_months):
                await self._archive(month)
                done.append(month.month)
        return done

    async def _next(self, keep_months: int) -> Month | None:
        if begun := await self._database.read(month_sql.unfinished):
            return begun
        after = await self._database.read(sealed_until)
        next_due = partial(month_sql.due, after=after, keep_months=keep_months)
        if await self._database.read(next_due) is None:
            return None
        await prove(self._database, full=False)
        # Stretches are there now, and the month ends with one of them.
        month = await self._database.read(next_due)
        if month is not None:
            await self._require_ready(month)
            await self._database.write(partial(month_sql.seal, month=month, actor=self._actor))
            self._tell(f"{month.month}: sealed")
        return month

    async def _require_ready(self, month: Month) -> None:
        waiting = [one for one in await self._spool.waiting_ids() if one < month.until_id]
        if waiting:
            raise ArchiveRefused(f"{month.month}: {len(waiting)} of its events wait in the spool")
        await self._database.read(partial(month_sql.require_ready, month=month))
        await self._sums_of(month)

    async def _archive(self, month: Month) -> None:
        if month.state != "dropping":
            await self._write(month)
        else:
            await asyncio.to_thread(check_files, self._folder, manifest_of(month.manifest or ""))
        await self._drop(month)

    async def _write(self, month: Month) -> None:
        await self._wait_for_others()
        # One that came before the seal, after the proof.
        await prove(self._database, full=False)
        stretches = await self._database.read(partial(month_sql.require_proven, month=month))
        sums = await self._sums_of(month)
        files = await MonthWriter(self._database, self._folder, self._tell).write(month, sums)
        paths = [self._folder / file.name for file in files]
        found = await asyncio.to_thread(reread, paths, stretches, sums)
        await self._require_leaves(month, paths)
        self._tell(f"{month.month}: read again, and proven")
        manifest = Manifest(
            month.month,
            month.from_id,
            month.until_id,
            tuple(files),
            tuple((one.from_id, one.until_id or "", one.digest or "", one.events) for one in stretches),
            tuple(map(astuple, sums)),
            digest_of_sums([*key, *amounts] for key, amounts in found.days.items()),
        )
        # What was read again is what the digests are of.
        await asyncio.to_thread(check_files, self._folder, manifest)
        await asyncio.to_thread(write_manifest, self._folder, manifest)
        self._tell(f"{month.month}: {manifest.events} events in {len(files)} files")
        await self._keep_days(month, found)
        give_up = partial(month_sql.give_up, month=month, manifest=manifest, found=found, actor=self._actor)
        await self._database.write(PatientWork(give_up))
        self._tell(f"{month.month}: archived")

    async def _sums_of(self, month: Month) -> list[Sum]:
        """What was proven of it. Raises `ArchiveRefused` where the folder has files of other events."""
        sums = await self._database.read(partial(month_sql.sums_of_stretches, month=month))
        await asyncio.to_thread(require_own, self._folder, month.month, [astuple(one) for one in sums])
        return sums

    async def _require_leaves(self, month: Month, paths: Sequence[Path]) -> None:
        """What the files have is what the transparency log has: it can be proven from them. Raises `ArchiveRefused`."""
        await self._database.read(partial(month_sql.require_logged, month=month))
        for path in paths:
            rows = events_of(path)
            while piece := await asyncio.to_thread(_next_of, rows):
                if missing := await self._database.read(partial(places.missing, rows=piece)):
                    raise ArchiveRefused(
                        f"{month.month}: event {missing[0]} is not in the transparency log as it is in the ledger; "
                        "pith reconcile --full says which are not"
                    )

    async def _wait_for_others(self) -> None:
        """Until every transaction has ended that may have added an event without having seen the seal."""
        number = await self._database.write(checkpoint_sql.mark)
        if number is None:
            return
        for _ in range(WAITS):
            if await self._database.read(partial(checkpoint_sql.is_over, transaction=number)):
                return
            await asyncio.sleep(WAIT_S)
        raise ArchiveRefused("another transaction has been open in the database for too long; run this again")

    async def _keep_days(self, month: Month, found: Reread) -> None:
        await self._database.write(PatientWork(partial(month_sql.clear_days, month=month)))
        days = list(found.days.items())
        for begin in range(0, len(days), ROWS_AT_ONCE):
            piece = days[begin : begin + ROWS_AT_ONCE]
            await self._database.write(PatientWork(partial(month_sql.add_days, month=month, days=piece)))
        self._tell(f"{month.month}: {len(days)} sums kept")

    async def _drop(self, month: Month) -> None:
        for name in await self._database.read(partial(tables_of, month=month)):
            await self._drop_table(name)
            self._tell(f"{month.month}: table {name} dropped")
        delete = PatientWork(partial(month_sql.delete_events, month=month, limit=ROWS_AT_ONCE))
        deleted = 0
        while number := await self._database.write(delete):
            deleted += number
            self._tell(f"{month.month}: {deleted} events deleted")
        await self._database.write(partial(month_sql.end, month=month, actor=self._actor))
        self._tell(f"{month.month}: dropped")

    async def _drop_table(self, name: str) -> None:
        for left in range(TRIES, 0, -1):
            try:
                return await self._database.write(partial(drop_table, name=name))
            except LedgerUnavailable:
                if left == 1:
                    raise
                await asyncio.sleep(WAIT_S)


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
        for event in await asyncio.to_thread(_all_with, folder / file.name, "event_id", event_id):
            return Found(folder / file.name, event)
    return None


async def archived_events(
    database: Database, folder: Path, workspace: str, month: str
) -> dict[str, list[Row]]:
    """What the archive has of a workspace's events that the proof of a month needs, by the month whose files have it.
    Raises `UnknownAccount`, `ArchiveDamaged` and `LedgerUnavailable`."""
    found: dict[str, list[Row]] = {}
    owner, parts = await database.read(partial(archived_parts, workspace=workspace, month=month))
    for part in parts:
        manifest = manifest_of(await database.read(partial(stored_manifest, month=part)))
        found[part] = []
        for file in manifest.files:
            if file.first_workspace_id <= owner <= file.last_workspace_id:
                path = folder / file.name
                found[part] += await asyncio.to_thread(_all_with, path, "workspace_id", owner)
    return found


def _all_with(path: Path, column: str, value: str) -> list[Row]:
    return list(rows_with(path, column, value))


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
    return manifest_of(await database.read(partial(stored_manifest, month=month.month)))


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
