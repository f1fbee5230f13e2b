"""Balances of workspaces and of keys with a limit, on their rows: their month, the room of limits, and refusals."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Connection, and_, bindparam, case, func, or_, select, update
from sqlalchemy.engine import Row

from billing.errors import BillingDisabled, InvalidKey, QuotaExceeded, UnknownAccount
from billing.store.database import use_one_snapshot
from billing.store.dates import month_bounds, this_month
from billing.store.schema import api_keys, key_months, projects, workspace_months, workspaces
from billing.store.statements import PrecompiledStatement, replacing
from billing.usage import Hold

_k, _km = api_keys.c, key_months.c
_asked = api_keys.alias("asked")
_ROW = (
    select(func.coalesce(_asked.c.budget_key_id, _asked.c.id))
    .where(_asked.c.id == bindparam("key"))
    .scalar_subquery()
)
_amount: ColumnElement[int] = bindparam("amount", type_=BigInteger)
_freed: ColumnElement[int] = bindparam("freed", type_=BigInteger)
_charged: ColumnElement[int] = bindparam("charge", type_=BigInteger)
_held = _k.held_nano_usd + _amount
_RESERVE = PrecompiledStatement(
    update(api_keys)
    .where(
        _k.id == _ROW,
        _k.month == bindparam("in_month"),
        or_(_k.spend_limit_nano_usd.is_(None), _k.posted_nano_usd + _held <= _k.spend_limit_nano_usd),
        or_(
            _k.monthly_limit_nano_usd.is_(None),
            _k.month_posted_nano_usd + _held <= _k.monthly_limit_nano_usd,
        ),
    )
    .values(held_nano_usd=_held)
)
_MOVE = PrecompiledStatement(
    update(api_keys)
    .where(_k.id == _ROW, _k.month == bindparam("in_month"))
    .values(
        held_nano_usd=_k.held_nano_usd - _freed,
        posted_nano_usd=_k.posted_nano_usd + _charged,
        month_posted_nano_usd=_k.month_posted_nano_usd + _charged,
    )
)
_FREE = PrecompiledStatement(
    update(api_keys)
    .where(_k.id == _ROW, _k.month.is_not(None))
    .values(held_nano_usd=_k.held_nano_usd - _freed)
)
_LOCKED = select(api_keys).where(_k.id == _ROW, _k.month.is_not(None)).with_for_update(key_share=True)
_POSTED = select(func.coalesce(func.sum(_km.posted_nano_usd), 0)).where(
    _km.key_id == bindparam("key"), _km.month == bindparam("in_month")
)
_posted_there = case(
    (_k.month == bindparam("in_month"), _k.month_posted_nano_usd),
    else_=func.coalesce(_km.posted_nano_usd, 0),
)
# Keys of a workspace whose held money would exceed their limit in a month that they were charged in before.
_WITHOUT_ROOM = (
    select(func.count())
    .select_from(
        api_keys.join(projects, projects.c.id == _k.project_id).outerjoin(
            key_months, and_(_km.key_id == _k.id, _km.month == bindparam("in_month"))
        )
    )
    .where(
        projects.c.workspace_id == bindparam("workspace"),
        _k.month.is_not(None),
        _k.monthly_limit_nano_usd.is_not(None),
        _posted_there > 0,
        _posted_there + _k.held_nano_usd > _k.monthly_limit_nano_usd,
    )
)


class KeyQuotaExceeded(QuotaExceeded):
    """The worst case of this request would exceed a spend limit of its key. Nothing was held."""

    whose = "key"


def reserve(connection: Connection, key_id: str, amount_nano_usd: int, month: str) -> None:
    """Holds the amount on the key's row, where it has a limit. Raises `KeyQuotaExceeded`."""
    parameters = {"key": key_id, "amount": amount_nano_usd, "in_month": month}
    if _RESERVE.count(connection, parameters) == 1:
        return
    row = locked(connection, key_id, month)
    if row is not None and _RESERVE.count(connection, parameters) != 1:
        raise _refusal(row, amount_nano_usd)


def move(connection: Connection, key_id: str, *, freed: int, charge: int, month: str) -> None:
    """Moves money from held to posted on the key's row, where it has a limit. Room was seen before."""
    parameters = {"key": key_id, "freed": freed, "charge": charge, "in_month": month}
    if _MOVE.count(connection, parameters) != 1 and locked(connection, key_id, month) is not None:
        _MOVE.count(connection, parameters)


def free(connection: Connection, key_id: str, freed: int) -> None:
    """Gives held money back."""
    _FREE.count(connection, {"key": key_id, "freed": freed})


def key_room(connection: Connection, key_id: str, freed: int, month: str) -> int:
    """The room that the key's limits leave, once this request's own hold is gone; more than any column holds where it
    has none."""
    row = locked(connection, key_id, month)
    if row is None:
        return 2**63
    return max(
        0, min((limit - posted - row.held_nano_usd + freed for limit, posted in _limits(row)), default=2**63)
    )


def locked(connection: Connection, key_id: str, month: str) -> Row[Any] | None:
    """The row that has the key's balance, locked and moved to this month; None where the key has no spend limit."""
    row = connection.execute(_LOCKED, {"key": key_id}).one_or_none()
    if row is None or row.month == month:
        return row
    kept = connection.execute(_POSTED, {"key": row.id, "in_month": month}).scalar_one()
    left = {"key_id": row.id, "month": row.month, "posted_nano_usd": row.month_posted_nano_usd}
    connection.execute(replacing(connection, key_months, "posted_nano_usd"), left)
    moving = update(api_keys).where(_k.id == row.id)
    connection.execute(moving.values(month=month, month_posted_nano_usd=int(kept)))
    return connection.execute(_LOCKED, {"key": key_id}).one()


def have_room_in(connection: Connection, workspace_id: str, month: str) -> bool:
    """True where what the workspace's keys hold fits their limits of that month."""
    parameters = {"workspace": workspace_id, "in_month": month}
    return connection.execute(_WITHOUT_ROOM, parameters).scalar_one() == 0


def _limits(row: Row[Any]) -> list[tuple[int, int]]:
    """Each limit, and what is posted against it."""
    pairs = (
        (row.spend_limit_nano_usd, row.posted_nano_usd),
        (row.monthly_limit_nano_usd, row.month_posted_nano_usd),
    )
    return [(limit, posted) for limit, posted in pairs if limit is not None]


def _refusal(row: Row[Any], wanted: int) -> KeyQuotaExceeded:
    total = row.spend_limit_nano_usd
    committed = row.posted_nano_usd + row.held_nano_usd
    if total is not None and committed + wanted > total:
        return KeyQuotaExceeded(
            span="total", limit_nano_usd=total, committed_nano_usd=committed, wanted_nano_usd=wanted
        )
    return KeyQuotaExceeded(
        span="month",
        limit_nano_usd=row.monthly_limit_nano_usd or 0,
        committed_nano_usd=row.month_posted_nano_usd + row.held_nano_usd,
        wanted_nano_usd=wanted,
    )


_w, _m = workspaces.c, workspace_months.c
# NO KEY UPDATE, as an UPDATE takes it: the stronger lock would wait for every event that is being inserted.
_LOCK = (
    select(workspaces, this_month().label("now_month"))
    .where(_w.id == bindparam("workspace"))
    .with_for_update(key_share=True)
)
_KEPT = select(func.coalesce(func.sum(_m.posted_nano_usd), 0)).where(
    _m.workspace_id == bindparam("workspace"), _m.month == bindparam("in_month")
)


def locked_in_month(connection: Connection, workspace_id: str) -> Row[Any] | None:
    """The workspace's row, locked and moved to the present month, `now_month`; None if there is no such workspace.

    It stays where it is if what is held now would exceed the limit there, its own or a key's, with what that month was
    charged before: then held money is charged to the month that had room for it. A credit may have made that room.
    """
    parameters = {"workspace": workspace_id}
    row = connection.execute(_LOCK, parameters).one_or_none()
    if row is None or row.month == row.now_month:
        return row
    kept = posted_in(connection, workspace_id, row.now_month)
    limit = row.monthly_limit_nano_usd
    if limit is not None and kept + row.held_nano_usd > limit:
        return row
    if row.has_limited_keys and not have_room_in(connection, workspace_id, row.now_month):
        return row
    _move_to_present(connection, row, kept)
    return connection.execute(_LOCK, parameters).one()


def posted_in(connection: Connection, workspace_id: str, month: str) -> int:
    """Charges of a month other than the row's."""
    return int(connection.execute(_KEPT, {"workspace": workspace_id, "in_month": month}).scalar_one())


def _move_to_present(connection: Connection, row: Row[Any], kept: int) -> None:
    left = {"workspace_id": row.id, "month": row.month, "posted_nano_usd": row.month_posted_nano_usd}
    connection.execute(replacing(connection, workspace_months, "posted_nano_usd"), left)
    moving = update(workspaces).where(_w.id == row.id)
    connection.execute(moving.values(month=row.now_month, month_posted_nano_usd=kept))


def room(row: Row[Any], freed: int) -> int:
    """The room that the limits leave, once this request's own hold is gone."""
    held = row.held_nano_usd - freed
    rooms = [
        limit - posted - held
        for limit, posted in (
            (row.spend_limit_nano_usd, row.posted_nano_usd - row.credited_nano_usd),
            (row.monthly_limit_nano_usd, row.month_posted_nano_usd),
        )
        if limit is not None
    ]
    # Without a limit, more than any column holds.
    return max(0, min(rooms, default=2**63))


def refusal(connection: Connection, row: Row[Any] | None, hold: Hold) -> Exception:
    if row is None or row.revoked_at is not None:
        return InvalidKey("workspace revoked")
    if not row.billing_enabled:
        return BillingDisabled()
    wanted = hold.amount_nano_usd
    committed = row.posted_nano_usd - row.credited_nano_usd + row.held_nano_usd
    total, in_month = row.spend_limit_nano_usd, row.monthly_limit_nano_usd
    # The row may have changed between the two statements: the limit closest to being used up is named.
    if total is not None and (in_month is None or committed + wanted > total):
        return QuotaExceeded(
            span="total", limit_nano_usd=total, committed_nano_usd=committed, wanted_nano_usd=wanted
        )
    posted = row.month_posted_nano_usd
    if row.month != row.now_month:
        posted = posted_in(connection, row.id, row.now_month)
    return QuotaExceeded(
        span="month",
        limit_nano_usd=in_month or 0,
        committed_nano_usd=posted + row.held_nano_usd,
        wanted_nano_usd=wanted,
    )


@dataclass(frozen=True, slots=True)
class SpendLimit:
    """`used` is what was charged less what was credited: below zero, it is paid in advance. None: no limit, or no end.

    What is left of a limit is below zero where it was lowered, or usage under an allowance passed it.
    """

    limit_nano_usd: int | None
    used_nano_usd: int
    held_nano_usd: int
    resets_at: datetime | None = None

    @property
    def remaining_nano_usd(self) -> int | None:
        if self.limit_nano_usd is None:
            return None
        return self.limit_nano_usd - self.used_nano_usd - self.held_nano_usd


@dataclass(frozen=True, slots=True)
class Spending:
    """Of one workspace. `month` is the calendar month (UTC) of the database's clock."""

    billing_enabled: bool
    total: SpendLimit
    month: SpendLimit
    # Of the key and those that it was rotated from; None where it has no such limit. No credit is in them.
    key_total: SpendLimit | None = None
    key_month: SpendLimit | None = None


def spending(connection: Connection, workspace_id: str, key_id: str) -> Spending:
    """Raises `UnknownAccount`."""
    # The row of the workspace and that of the key are of one moment.
    use_one_snapshot(connection)
    statement = select(workspaces, this_month().label("now_month")).where(workspaces.c.id == workspace_id)
    row = connection.execute(statement).one_or_none()
    if row is None:
        raise UnknownAccount("workspace", workspace_id)
    in_month = row.month_posted_nano_usd
    if row.month != row.now_month:
        # The row moves to this month with its next request.
        in_month = posted_in(connection, row.id, row.now_month)
    used = row.posted_nano_usd - row.credited_nano_usd
    _, next_month = month_bounds(row.now_month)
    return Spending(
        row.billing_enabled,
        SpendLimit(row.spend_limit_nano_usd, used, row.held_nano_usd),
        SpendLimit(row.monthly_limit_nano_usd, in_month, row.held_nano_usd, next_month),
        *_of_key(connection, key_id, row.now_month, next_month),
    )


def _of_key(
    connection: Connection, key_id: str, month: str, next_month: datetime
) -> tuple[SpendLimit | None, SpendLimit | None]:
    asked, elsewhere = api_keys.alias("asked"), key_months.c
    limited = select(func.coalesce(asked.c.budget_key_id, asked.c.id)).where(asked.c.id == key_id)
    statement = select(api_keys).where(api_keys.c.id == limited.scalar_subquery())
    row = connection.execute(statement).one_or_none()
    if row is None or row.month is None:
        return None, None
    in_month = row.month_posted_nano_usd
    if row.month != month:
        there = select(elsewhere.posted_nano_usd).where(elsewhere.key_id == row.id, elsewhere.month == month)
        in_month = connection.execute(there).scalar_one_or_none() or 0
    total, monthly = row.spend_limit_nano_usd, row.monthly_limit_nano_usd
    return (
        None if total is None else SpendLimit(total, row.posted_nano_usd, row.held_nano_usd),
        None if monthly is None else SpendLimit(monthly, in_month, row.held_nano_usd, next_month),
    )
