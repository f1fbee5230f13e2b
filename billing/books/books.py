"""The ledger as an operator reads it: usage, statements, the audit log, and whether everything adds up."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial

from billing.accounts import account_sql, audit_log
from billing.accounts.audit_log import AuditEntry
from billing.books import reconciliation
from billing.books.rebuild import rebuild_balances
from billing.books.reconciliation import Difference, MispricedEvent, Reconciliation
from billing.books.statement import Statement, statement
from billing.books.usage_report import Dimension, UsageSum, usage
from billing.spool.spool import Spool
from billing.store.database import Database

MOST_NAMED = 1000


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
    ) -> list[UsageSum]:
        return await self._database.read(partial(usage, by=by, workspace=workspace, since=since, until=until))

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

    async def reconcile(self, spool: Spool) -> Reconciliation:
        # Balances must be of one moment. Costs belong to events, which never change, so they are read in pieces.
        balances = await self._database.read(reconciliation.balances_of_one_moment)
        mispriced = await self._mispriced()
        return Reconciliation(
            balances=tuple(balances),
            mispriced=tuple(mispriced),
            spool_waiting=await spool.count_waiting(),
            spool_refused=await spool.count_refused(),
        )

    async def _mispriced(self) -> list[MispricedEvent]:
        found: list[MispricedEvent] = []
        after: str | None = ""
        while after is not None and len(found) < MOST_NAMED:
            piece, after = await self._database.read(partial(reconciliation.mispriced_events, after=after))
            found += piece
        return found[:MOST_NAMED]

    async def rebuild(self, *, actor: str, now: datetime) -> list[Difference]:
        """Recomputes every balance from the rows beneath it; returns what was different. Raises `RebuildRefused`."""
        return await self._database.write(lambda c: rebuild_balances(c, actor=actor, now=now))
