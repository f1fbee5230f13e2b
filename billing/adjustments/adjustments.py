"""Credits, adjustments and refunds as an operator makes and lists them."""

from datetime import datetime
from functools import partial

from billing.accounts import account_sql
from billing.adjustments import adjustment_sql
from billing.adjustments.adjustment import Adjustment, Wanted, lowering, wanted
from billing.adjustments.request_events import event_of_request
from billing.store.database import Database, RowWork


class Adjustments:
    """Those of one ledger; each is in the audit log too, as made by `actor`.

    Amounts are in nano-USD. The same `idempotency_key` twice in a workspace is one adjustment. What makes one raises
    `InvalidAdjustment`, `AdjustmentKeyReused`, `AdjustmentRefused`, `UnknownAccount`, `UnknownEvent` and
    `LedgerUnavailable`. After the last it is not known whether it was made: ask again with the same key.
    """

    def __init__(self, database: Database, *, actor: str) -> None:
        self._database = database
        self._actor = actor

    async def credit(self, workspace: str, *, nano_usd: int, reason: str, idempotency_key: str) -> Adjustment:
        """Lowers what is owed by `nano_usd`, which is above zero; below nothing, it is paid in advance."""
        owner = await self._workspace_id(workspace)
        amount = lowering(nano_usd)
        asked = wanted(owner, "credit", nano_usd=amount, reason=reason, idempotency_key=idempotency_key)
        return await self._add(asked)

    async def adjust(self, workspace: str, *, nano_usd: int, reason: str, idempotency_key: str) -> Adjustment:
        """Adds `nano_usd` to what is owed, which may be below zero. An upward one never passes a limit."""
        owner = await self._workspace_id(workspace)
        asked = wanted(owner, "adjustment", nano_usd=nano_usd, reason=reason, idempotency_key=idempotency_key)
        return await self._add(asked)

    async def refund(
        self, event_id: str, *, nano_usd: int | None = None, reason: str, idempotency_key: str
    ) -> Adjustment:
        """Gives back what was charged for a usage event: all that is left of it, or `nano_usd`, which is above zero."""
        owner = await self._database.read(lambda c: adjustment_sql.owner_of(c, event_id, idempotency_key))
        amount = None if nano_usd is None else lowering(nano_usd)
        asked = wanted(
            owner,
            "refund",
            nano_usd=amount,
            event_id=event_id,
            reason=reason,
            idempotency_key=idempotency_key,
        )
        return await self._add(asked)

    async def event_of_request(
        self, workspace: str, request_id: str, *, since: datetime | None = None
    ) -> str:
        """The id of the usage event that a refund of a request is of: the one that was charged. Looked for from `since`
        on, or in the last 35 days. Raises `UnknownRequest` and `AmbiguousRequest`."""
        find = partial(event_of_request, workspace=workspace, request_id=request_id, since=since)
        return await self._database.read(find)

    async def listed(
        self,
        *,
        workspace: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 1000,
    ) -> list[Adjustment]:
        """The last `limit`, oldest first, made from `since` to before `until`. Raises `UnknownAccount`."""
        read = partial(adjustment_sql.listed, workspace=workspace, since=since, until=until, limit=limit)
        return await self._database.read(read)

    async def _workspace_id(self, workspace: str) -> str:
        return (await self._database.read(lambda c: account_sql.find_workspace(c, workspace))).id

    async def _add(self, asked: Wanted) -> Adjustment:
        # Named by its row, it takes its turn with the workspace's charges.
        work = RowWork(asked.workspace_id, partial(adjustment_sql.add, asked=asked, actor=self._actor))
        return await self._database.write(work)
