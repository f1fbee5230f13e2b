"""The ledger as an operator reads it: usage, statements, the audit log, and whether everything adds up."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial

from billing.accounts import account_sql, audit_log
from billing.accounts.audit_log import AuditEntry
from billing.books import reconciliation
from billing.books.compressions import Comparison, comparisons
from billing.books.proof import prove
from billing.books.rebuild import EventsChanged, rebuild_balances
from billing.books.reconciliation import (
    Difference,
    Reconciliation,
    all_wrong_rows,
    key_differences_of_one_moment,
)
from billing.books.saving import Dimension
from billing.books.statement import Statement, statement
from billing.books.usage_report import UsageSum, usage
from billing.books.wrong_adjustments import wrong_adjustments
from billing.ledger.spool import Spool
from billing.rollups.archived import ArchivedSumsChanged, wrong_archives
from billing.rollups.refill import unequal_sums
from billing.store.database import Database


class Books:
    """Reads one ledger. Every method raises `LedgerUnavailable`; those that name a workspace `UnknownAccount`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def usage(
        self,
        by: Sequence[Dimension],
        *,
        workspace: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
    ) -> list[UsageSum]:
        """The first `limit` groups."""
        read = partial(usage, by=by, workspace=workspace, since=since, until=until, limit=limit)
        return await self._database.read(read)

    async def comparisons(
        self,
        by: Sequence[Dimension],
        *,
        workspace: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        charged_in: str | None = None,
    ) -> list[Comparison]:
        """Compressed conversations against those that were left whole."""
        read = partial(
            comparisons, by=by, workspace=workspace, since=since, until=until, charged_in=charged_in
        )
        return await self._database.read(read)

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
        balances, wrong_sums = await self._database.read(
            partial(reconciliation.all_of_one_moment, read=proof.sums)
        )
        of_keys = await self._database.read(key_differences_of_one_moment)
        wrong = await self._database.read(wrong_adjustments)
        wrong_rows = await all_wrong_rows(self._database) if full else []
        unequal = await self._database.read(unequal_sums)
        return Reconciliation(
            balances=tuple(balances),
            wrong_adjustments=tuple(wrong),
            wrong_sums=(*proof.wrong_sums, *wrong_sums),
            changed=tuple(proof.changed),
            events_read=proof.events,
            mispriced=tuple(proof.mispriced),
            spool_waiting=await spool.count_waiting(),
            spool_refused=await spool.count_refused(),
            of_keys=tuple(of_keys),
            wrong_rows=tuple(wrong_rows),
            unequal_sums=tuple(unequal),
            wrong_archives=tuple(await self._database.read(partial(wrong_archives, full=full))),
        )

    async def rebuild(self, *, actor: str, now: datetime) -> list[Difference]:
        """Reads every event, and recomputes every balance from the rows beneath it; returns what was different. Raises
        `RebuildRefused`, also where events are not those that were proven, and `ArchivedSumsChanged`."""
        for one in await self._database.read(partial(wrong_archives, full=True)):
            raise ArchivedSumsChanged(one.month, one.problem)
        proof = await prove(self._database, full=True)
        if proof.changed:
            raise EventsChanged(proof.changed)
        distrusted, wrong = list(proof.sums), await all_wrong_rows(self._database)
        return await self._database.write(
            lambda c: rebuild_balances(c, actor=actor, now=now, distrusted=distrusted, wrong=wrong)
        )
