"""The ledger as an operator reads it: usage, statements, the audit log, and whether everything adds up."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from sqlalchemy import Connection, func, select

from billing.accounts import account_sql, audit_log
from billing.accounts.audit_log import AuditEntry
from billing.books.invariants import Violation, unequal_sums, violations, wrong_counters, wrong_rows
from billing.books.logged import wrong_counts, wrong_leaves
from billing.books.mispriced import MispricedEvent
from billing.books.proof import ChangedEvents, prove
from billing.books.rebuild import EventsChanged, rebuild_balances
from billing.books.statement import Statement, statement
from billing.books.wrong_adjustments import WrongAdjustment, wrong_adjustments
from billing.ledger.spool import Spool
from billing.rollups.archived import ArchivedSumsChanged, WrongArchive, wrong_archives
from billing.store.database import Database, use_one_snapshot
from billing.store.rollup_tables import usage_months
from billing.store.schema import adjustments, workspaces

HALF = 2**32


@dataclass(frozen=True, slots=True)
class Totals:
    """Of all workspaces, as their rows and the sums of usage have them."""

    workspaces: int
    posted_nano_usd: int
    collected_nano_usd: int
    credited_nano_usd: int
    held_nano_usd: int
    adjustments: int
    events: int
    # The part of the events' cost that was written off; it is in no balance.
    written_off_nano_usd: int

    @property
    def uncollected_nano_usd(self) -> int:
        return self.posted_nano_usd - self.credited_nano_usd - self.collected_nano_usd


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """Whether events, adjustments, balances, holds, collections and the transparency log agree. What waits in the spool
    is in none yet."""

    totals: Totals
    # Of the balances of workspaces and of keys with a spend limit, and of what budgets hold; a full one, also of what
    # is posted to these.
    differences: list[Violation]
    # Of the sums that usage is read from, and of those that were kept when events were proven.
    wrong_sums: tuple[Violation, ...]
    # Of the sums that usage is read from, in every column: looked for by a full one alone.
    wrong_rows: tuple[Violation, ...]
    # Of months, which the sums of their days do not add up to, in any column.
    unequal_sums: tuple[Violation, ...]
    # What is kept of archived months.
    wrong_archives: tuple[WrongArchive, ...]
    mispriced: tuple[MispricedEvent, ...]
    # Events that are not those that were proven before.
    changed: tuple[ChangedEvents, ...]
    # The others were proven before, and nothing arrived beside them.
    events_read: int
    wrong_adjustments: tuple[WrongAdjustment, ...]
    # Of the transparency log, in words.
    wrong_log: tuple[str, ...]
    spool_waiting: int
    spool_refused: int

    @property
    def is_clean(self) -> bool:
        wrong_events = self.mispriced or self.changed
        wrong_sums = self.wrong_sums or self.wrong_rows or self.unequal_sums or self.wrong_archives
        wrong_rows = self.differences or self.wrong_adjustments or self.wrong_log
        # What was used and set aside is charged to nobody until an operator has decided.
        return not (wrong_rows or wrong_events or wrong_sums or self.spool_refused)


class Books:
    """Reads one ledger. Every method raises `LedgerUnavailable`; those that name a workspace `UnknownAccount`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def statement(self, workspace: str, month: str) -> Statement:
        """Raises `ValueError` for an invalid month."""
        return await self._database.read(partial(statement, workspace=workspace, month=month))

    async def audit_log(
        self,
        *,
        workspace: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 1000,
    ) -> list[AuditEntry]:
        """The last entries, oldest first."""
        owner = None
        if workspace is not None:
            owner = (await self._database.read(lambda c: account_sql.find_workspace(c, workspace))).id
        read = partial(audit_log.entries, workspace_id=owner, since=since, until=until, limit=limit)
        return await self._database.read(read)

    async def reconcile(self, spool: Spool, *, full: bool = False) -> Reconciliation:
        """Reads what was not proven before; `full`: everything."""
        # Balances must be of one moment. Costs belong to events, which never change, so they are read in pieces.
        proof = await prove(self._database, full=full)
        totals, balances, sums, log = await self._database.read(
            partial(_of_one_moment, distrusted=proof.distrusted, full=full)
        )
        return Reconciliation(
            totals=totals,
            differences=balances,
            wrong_sums=(*proof.wrong_sums, *sums),
            wrong_rows=tuple(await wrong_rows(self._database) if full else ()),
            unequal_sums=tuple(await self._database.read(unequal_sums)),
            wrong_archives=tuple(await self._database.read(partial(wrong_archives, full=full))),
            mispriced=tuple(proof.mispriced),
            changed=tuple(proof.changed),
            events_read=proof.events,
            wrong_adjustments=tuple(await self._database.read(wrong_adjustments)),
            wrong_log=(*log, *(await wrong_leaves(self._database) if full else ())),
            spool_waiting=await spool.count_waiting(),
            spool_refused=await spool.count_refused(),
        )

    async def rebuild(self, *, actor: str, now: datetime) -> list[Violation]:
        """Reads every event, and recomputes every balance from the rows beneath it; returns what was different. Raises
        `RebuildRefused`, also where events are not those that were proven, and `ArchivedSumsChanged`."""
        for one in await self._database.read(partial(wrong_archives, full=True)):
            raise ArchivedSumsChanged(one.month, one.problem)
        proof = await prove(self._database, full=True)
        if proof.changed:
            raise EventsChanged(proof.changed)
        distrusted, wrong = proof.distrusted, await wrong_rows(self._database)
        return await self._database.write(
            lambda c: rebuild_balances(c, actor=actor, now=now, distrusted=distrusted, wrong=wrong)
        )


def _of_one_moment(
    connection: Connection, distrusted: Collection[str], *, full: bool
) -> tuple[Totals, list[Violation], list[Violation], list[str]]:
    """The totals, and what is wrong in balances, in sums and in the transparency log. A settlement between two reads
    would look like a loss."""
    use_one_snapshot(connection)
    found = violations(connection, distrusted)
    balances = [one for one in found if one.table in ("workspaces", "api_keys")]
    sums = [one for one in found if one not in balances]
    balances += wrong_counters(connection, full=full)
    months = [one for one in sums if one.table == usage_months.name]
    w, u = workspaces.c, usage_months.c
    amounts = (w.posted_nano_usd, w.collected_nano_usd, w.credited_nano_usd, w.held_nano_usd)
    # In halves: many workspaces' amounts may add up to more than the 64 bits of a database's integer.
    halves = [half for one in amounts for half in (one // HALF, one % HALF)]
    statement = select(
        func.count(),
        *(func.coalesce(func.sum(half), 0) for half in halves),
        select(func.count()).select_from(adjustments).scalar_subquery(),
        *(
            select(func.coalesce(func.sum(one), 0)).scalar_subquery()
            for one in (u.requests, u.written_off_nano_usd)
        ),
    ).select_from(workspaces)
    count, *sums_of_halves, made, requests, off = map(int, connection.execute(statement).one())
    pairs = zip(sums_of_halves[::2], sums_of_halves[1::2], strict=True)
    posted, collected, credited, held = (high * HALF + low for high, low in pairs)
    totals = Totals(count, posted, collected, credited, held, made, requests, off)
    # As the events are, where the sums are wrong.
    events = sum(one.due["events"] - one.stored["events"] for one in months)
    name = "written_off_nano_usd"
    written_off = sum(one.due[name] - one.stored[name] for one in months)
    totals = replace(
        totals,
        events=totals.events + events,
        written_off_nano_usd=totals.written_off_nano_usd + written_off,
    )
    log = wrong_counts(connection, events=totals.events, adjustments=totals.adjustments)
    return totals, balances, sums, log
