"""The money of keys that have a spend limit, on their own rows: it moves in the transaction in which their workspace's
does, after that row is locked.

A key's row is in the month of its workspace's, and moves there when money does: so an event counts to one month, for
both. `workspaces.has_limited_keys` says whether there is a row to look for.
"""

from typing import Any, ClassVar

from sqlalchemy import BigInteger, ColumnElement, Connection, and_, bindparam, case, func, or_, select, update
from sqlalchemy.engine import Row

from billing.errors import QuotaExceeded
from billing.store.schema import api_keys, key_months, projects
from billing.store.statements import PrecompiledStatement, replacing

_k, _m = api_keys.c, key_months.c
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
_POSTED = select(func.coalesce(func.sum(_m.posted_nano_usd), 0)).where(
    _m.key_id == bindparam("key"), _m.month == bindparam("in_month")
)
_posted_there = case(
    (_k.month == bindparam("in_month"), _k.month_posted_nano_usd),
    else_=func.coalesce(_m.posted_nano_usd, 0),
)
# Keys of a workspace whose held money would exceed their limit in a month that they were charged in before.
_WITHOUT_ROOM = (
    select(func.count())
    .select_from(
        api_keys.join(projects, projects.c.id == _k.project_id).outerjoin(
            key_months, and_(_m.key_id == _k.id, _m.month == bindparam("in_month"))
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

    whose: ClassVar[str] = "key"


def reserve(connection: Connection, key_id: str, amount_nano_usd: int, month: str) -> None:
    """Holds the amount on the key's row, where it has a limit. Raises `KeyQuotaExceeded`."""
    parameters = {"key": key_id, "amount": amount_nano_usd, "in_month": month}
    if _RESERVE.count(connection, parameters) == 1:
        return
    row = locked(connection, key_id, month)
    if row is not None and _RESERVE.count(connection, parameters) != 1:
        raise _refusal(row, amount_nano_usd)


def move(connection: Connection, key_id: str, *, freed: int, charge: int, month: str) -> None:
    """Moves money from held to posted on the key's row, where it has a limit. Whether there is room was seen before."""
    parameters = {"key": key_id, "freed": freed, "charge": charge, "in_month": month}
    if _MOVE.count(connection, parameters) != 1 and locked(connection, key_id, month) is not None:
        _MOVE.count(connection, parameters)


def free(connection: Connection, key_id: str, freed: int) -> None:
    """Gives held money back."""
    _FREE.count(connection, {"key": key_id, "freed": freed})


def room(connection: Connection, key_id: str, freed: int, month: str) -> int:
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
