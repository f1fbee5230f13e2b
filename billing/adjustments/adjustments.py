"""The SQL of adjustments: one is written with the sums that it changes, under the lock of its workspace's row.

A charge beyond its hold takes the same lock, so what was compared with the limits stays so until the commit. Rows of
holds are locked before a workspace's; this locks none."""

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import Connection, Select, func, select
from sqlalchemy.engine import Row

from billing.accounts import account_sql
from billing.accounts.audit_log import MAX_ACTOR_CHARS
from billing.adjustments.adjustment import (
    MAX_NANO_USD,
    Adjustment,
    AdjustmentKeyReused,
    AmbiguousRequest,
    EventArchived,
    NoRoomForAdjustment,
    NothingLeftToRefund,
    TooMuchAdjusted,
    UnknownEvent,
    UnknownRequest,
    Wanted,
    lowering,
    wanted,
)
from billing.errors import UnknownAccount
from billing.ledger import adjustment_rows
from billing.ledger.balances import locked_in_month
from billing.rollups.archived import is_late, sealed_until
from billing.rollups.usage_sums import CHARGED
from billing.store.database import Database, RowWork
from billing.store.dates import now_s, within
from billing.store.schema import adjustments, usage_events, workspaces

_a, _w, _e = adjustments.c, workspaces.c, usage_events.c
# So that no sum of sums passes 64 bits.
_MOST_IN_ALL = 4 * MAX_NANO_USD


def event_of(connection: Connection, event_id: str) -> Row[*tuple[Any, ...]]:
    """The event that a refund is of: whose it is, and what was charged for it. Raises `UnknownEvent`, and
    `EventArchived` from the moment on at which its month is sealed."""
    charged = (_e.cost_nano_usd - _e.written_off_nano_usd).label("charged")
    statement = select(_e.workspace_id, _e.project_id, _e.key_id, charged).where(_e.event_id == event_id)
    row = connection.execute(statement).one_or_none() if event_id.isprintable() else None
    if event_id.isprintable() and event_id < sealed_until(connection) and not is_late(connection, event_id):
        raise EventArchived(event_id)
    if row is None:
        raise UnknownEvent(event_id)
    return row


def owner_of(connection: Connection, event_id: str, idempotency_key: str) -> str:
    """The workspace of the event that a refund is of; of the refund itself, where it was made before the event's month
    was archived. Raises `UnknownEvent` and `EventArchived`."""
    try:
        workspace_id: str = event_of(connection, event_id).workspace_id
    except EventArchived:
        same = (_a.event_id == event_id, _a.idempotency_key == idempotency_key)
        made = connection.execute(select(_a.workspace_id).where(*same)).scalar()
        if made is None:
            raise
        return str(made)
    return workspace_id


def add(connection: Connection, asked: Wanted, *, actor: str) -> Adjustment:
    """Writes it; the one that was made before, where its key was used for the same.

    Raises `AdjustmentKeyReused`, `AdjustmentRefused`, `UnknownAccount` and `UnknownEvent`; nothing was changed then.
    """
    row = locked_in_month(connection, asked.workspace_id)
    if row is None:
        raise UnknownAccount("workspace", asked.workspace_id)
    made = _by_key(connection, asked)
    if made is not None:
        if not asked.is_what_was_made(made):
            raise AdjustmentKeyReused(asked.idempotency_key, made.id)
        return made
    new = _new_row(connection, asked, row.month, actor)
    _check_room(row, new["nano_usd"])
    adjustment_rows.write(connection, new)
    return find(connection, new["id"])


def find(connection: Connection, adjustment_id: str) -> Adjustment:
    return Adjustment(**connection.execute(_selection().where(_a.id == adjustment_id)).one()._mapping)


def listed(
    connection: Connection,
    *,
    workspace: str | None = None,
    month: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int | None = None,
) -> list[Adjustment]:
    """The last `limit`, oldest first, made from `since` to before `until`; None is any. Raises `UnknownAccount`."""
    statement = _selection().order_by(_a.created_at.desc(), _a.id.desc()).limit(limit)
    if workspace is not None:
        owner = account_sql.find_workspace(connection, workspace)
        statement = statement.where(_a.workspace_id == owner.id)
    if month is not None:
        statement = statement.where(_a.month == month)
    rows = connection.execute(within(statement, _a.created_at, since, until)).all()
    return [Adjustment(**row._mapping) for row in reversed(rows)]


def refunded(connection: Connection, event_id: str) -> int:
    """Refunds of an event so far, in nano-USD above zero."""
    total = select(func.coalesce(func.sum(_a.nano_usd), 0)).where(_a.event_id == event_id)
    return -int(connection.execute(total).scalar_one())


def _new_row(connection: Connection, asked: Wanted, month: str, actor: str) -> dict[str, Any]:
    return {
        **adjustment_rows.identified(connection),
        "workspace_id": asked.workspace_id,
        "kind": asked.kind,
        **_amount_of(connection, asked),
        "month": month,
        "actor": actor[:MAX_ACTOR_CHARS],
        "reason": asked.reason,
        "idempotency_key": asked.idempotency_key,
        "refunds_rest": asked.refunds_rest,
    }


def _amount_of(connection: Connection, asked: Wanted) -> dict[str, Any]:
    if asked.event_id is None:
        return {"nano_usd": asked.nano_usd, "event_id": None, "project_id": None, "key_id": None}
    event = event_of(connection, asked.event_id)
    left = event.charged - refunded(connection, asked.event_id)
    wanted = left if asked.nano_usd is None else -asked.nano_usd
    if wanted > left or left == 0:
        raise NothingLeftToRefund(asked.event_id, charged_nano_usd=event.charged, left_nano_usd=left)
    whose = {"project_id": event.project_id, "key_id": event.key_id}
    return {"nano_usd": -wanted, "event_id": asked.event_id, **whose}


def _check_room(row: Row[Any], nano_usd: int) -> None:
    if max(row.posted_nano_usd, row.credited_nano_usd) + abs(nano_usd) > _MOST_IN_ALL:
        raise TooMuchAdjusted()
    if nano_usd < 0:
        return
    committed = row.posted_nano_usd - row.credited_nano_usd + row.held_nano_usd
    in_month = row.month_posted_nano_usd + row.held_nano_usd
    for limit, used in ((row.spend_limit_nano_usd, committed), (row.monthly_limit_nano_usd, in_month)):
        if limit is not None and used + nano_usd > limit:
            raise NoRoomForAdjustment(limit_nano_usd=limit, committed_nano_usd=used)


def _by_key(connection: Connection, asked: Wanted) -> Adjustment | None:
    same = (_a.workspace_id == asked.workspace_id, _a.idempotency_key == asked.idempotency_key)
    row = connection.execute(_selection().where(*same)).one_or_none()
    return None if row is None else Adjustment(**row._mapping)


def _selection() -> Select[Any]:
    named = _w.name.label("workspace_name")
    return select(*_a, named).join(workspaces, _w.id == _a.workspace_id)


# Ids of requests have no index, which each settlement would pay for: a workspace's events of this long are read.
SEARCHED = timedelta(days=35)
MOST_NAMED = 10


def event_of_request(
    connection: Connection, workspace: str, request_id: str, since: datetime | None = None
) -> str:
    """The id of the one event of the request that was charged, or of its only one. Only events of the workspace that
    were settled from `since` on are looked through: unless given, for `SEARCHED`.

    Raises `UnknownAccount`, `UnknownRequest` and `AmbiguousRequest`.
    """
    owner = account_sql.find_workspace(connection, workspace).id
    begin = since or datetime.fromtimestamp(connection.execute(select(now_s())).scalar_one(), UTC) - SEARCHED
    found = _events(connection, owner, request_id, begin) if request_id.isprintable() else []
    if not found:
        raise UnknownRequest(request_id, begin)
    wanted = [event_id for event_id, is_charged in found if is_charged] or [one for one, _ in found]
    if len(wanted) > 1:
        raise AmbiguousRequest(request_id, wanted)
    return wanted[0]


def _events(
    connection: Connection, workspace_id: str, request_id: str, begin: datetime
) -> list[tuple[str, bool]]:
    is_charged = (CHARGED > 0).label("is_charged")
    of_request = select(_e.event_id, is_charged).where(
        _e.workspace_id == workspace_id, _e.settled_at >= begin, _e.request_id == request_id
    )
    rows = connection.execute(of_request.order_by(is_charged.desc(), _e.event_id).limit(MOST_NAMED))
    return [(event_id, bool(charged)) for event_id, charged in rows]


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
        owner = await self._database.read(lambda c: owner_of(c, event_id, idempotency_key))
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
        read = partial(listed, workspace=workspace, since=since, until=until, limit=limit)
        return await self._database.read(read)

    async def _workspace_id(self, workspace: str) -> str:
        return (await self._database.read(lambda c: account_sql.find_workspace(c, workspace))).id

    async def _add(self, asked: Wanted) -> Adjustment:
        # Named by its row, it takes its turn with the workspace's charges.
        work = RowWork(asked.workspace_id, partial(add, asked=asked, actor=self._actor))
        return await self._database.write(work)
