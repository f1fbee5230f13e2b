"""Spend limits of workspaces and keys that are 50, 80 or 100% used: each percentage of each is announced once,
and again only after credits have brought a workspace's balance below the first of them.

Upkeep reads the balances; a request or a settlement does nothing for it. A row of `limit_alerts` is the proof that a
percentage was announced, whether or not there was anybody to tell."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Label,
    Select,
    and_,
    delete,
    exists,
    func,
    literal,
    or_,
    select,
    tuple_,
    union_all,
)
from sqlalchemy.dialects import postgresql, sqlite

from billing.errors import Span
from billing.price import exact_usd
from billing.store.budget_tables import PERCENTS, part_of
from billing.store.database import Database, PatientWork
from billing.store.dates import now_s, this_month
from billing.store.schema import api_keys, projects, workspaces
from billing.store.webhook_tables import limit_alerts
from billing.usage import month_of
from billing.webhooks import budget_alerts, outbox

MOST = 10_000


@dataclass(frozen=True, slots=True)
class RefusedLimit:
    """A spend limit that a request did not fit under. `key_id` is empty for a limit of the workspace."""

    workspace_id: str
    key_id: str
    span: Span
    limit_nano_usd: int


class Refusals:
    """Noting one costs a request that is refused anyway an entry in a set. What a process that dies had noted is noted
    again at the next refusal."""

    def __init__(self) -> None:
        self._noted: set[RefusedLimit] = set()

    def note(self, refused: RefusedLimit) -> None:
        if len(self._noted) < MOST:
            self._noted.add(refused)

    def take(self, most: int = MOST) -> list[RefusedLimit]:
        """So many of those that were noted, which are forgotten here."""
        return [self._noted.pop() for _ in range(min(most, len(self._noted)))]


# From here on a request that does not fit under the limit means that the limit is used up.
ENOUGH_PERCENT = 80
AT_ONCE = 200

_w, _k, _a = workspaces.c, api_keys.c, limit_alerts.c
_percents = union_all(*(select(literal(one).label("percent")) for one in PERCENTS)).subquery("percents")
_percent = _percents.c.percent


@dataclass(frozen=True, slots=True)
class Reached:
    """A percentage of a limit that is reached. `month` is empty for the limit of all time."""

    workspace_id: str
    workspace_name: str
    key_id: str
    span: Span
    month: str
    limit_nano_usd: int
    used_nano_usd: int
    percent: int
    # Requests are refused, though less than all of it is posted.
    refused: bool = False


@dataclass(frozen=True, slots=True)
class _Limit:
    """One kind of limit: the rows that have it, what is used of it, in which month, and whether both count now."""

    span: Span
    rows: FromClause
    key_id: ColumnElement[str]
    limit: ColumnElement[int]
    used: ColumnElement[int]
    month: ColumnElement[str]
    in_force: ColumnElement[bool]


def newly_reached(connection: Connection) -> list[Reached]:
    """Some that were not announced yet, by what is posted."""
    return [
        Reached(**row._mapping, span=of.span)
        for of in _LIMITS.values()
        for row in connection.execute(_unannounced(of).limit(AT_ONCE))
    ]


def newly_refused(connection: Connection, refused: Sequence[RefusedLimit]) -> list[Reached]:
    """Limits that requests did not fit under, that are mostly used, and whose 100% was not announced."""
    found = []
    for one in refused:
        row = connection.execute(_refused(one)).one_or_none()
        if row is not None:
            found.append(Reached(**row._mapping, span=one.span, refused=True))
    return found


def announce(connection: Connection, reached: Sequence[Reached]) -> int:
    """Announces those that nobody else has; how many."""
    count = 0
    # In one order on every server: two that insert the same rows in different orders would deadlock.
    for one in sorted(reached, key=lambda each: (each.workspace_id, each.key_id, each.span, each.percent)):
        if _mark(connection, one):
            outbox.announce(connection, "limit.reached", workspace_id=one.workspace_id, data=_data(one))
            count += 1
    return count


def has_fallen(connection: Connection) -> bool:
    """True where there is something to forget."""
    return bool(connection.execute(select(exists().where(_fallen()))).scalar_one())


def forget_fallen(connection: Connection) -> None:
    """Forgets what was announced of workspaces' limits of all time that credits and refunds have brought below the
    first percentage again: who pays in advance uses up one amount after another."""
    connection.execute(delete(limit_alerts).where(_fallen()))


def _fallen() -> ColumnElement[bool]:
    used = _w.posted_nano_usd - _w.credited_nano_usd
    below = exists().where(_w.id == _a.workspace_id, used < part_of(_a.limit_nano_usd, literal(PERCENTS[0])))
    return and_(_a.span == "total", _a.key_id == "", below.correlate(limit_alerts))


def _unannounced(of: _Limit) -> Select[Any]:
    due = and_(of.in_force, of.limit > 0, of.used >= part_of(of.limit, _percent))
    return _selection(of, _percent.label("percent")).where(due, ~_announced(of, _percent))


def _refused(one: RefusedLimit) -> Select[Any]:
    of = _LIMITS[bool(one.key_id), one.span]
    due = and_(of.in_force, of.limit > 0, of.used >= part_of(of.limit, literal(ENOUGH_PERCENT)))
    same = and_(_w.id == one.workspace_id, of.limit == one.limit_nano_usd)
    if one.key_id:
        # A key that was rotated spends from the row of the first.
        asked = api_keys.alias("asked")
        first = func.coalesce(asked.c.budget_key_id, asked.c.id)
        same = and_(same, _k.id == select(first).where(asked.c.id == one.key_id).scalar_subquery())
    return _selection(of, literal(100).label("percent")).where(same, due, ~_announced(of, literal(100)))


def _selection(of: _Limit, percent: Label[int]) -> Select[Any]:
    return (
        select(
            _w.id.label("workspace_id"),
            _w.name.label("workspace_name"),
            of.key_id.label("key_id"),
            of.month.label("month"),
            of.limit.label("limit_nano_usd"),
            of.used.label("used_nano_usd"),
            percent,
        )
        .select_from(of.rows)
        .order_by(_w.id, of.key_id, percent)
    )


def _of_workspaces() -> dict[tuple[bool, Span], _Limit]:
    alive, no_key = _w.revoked_at.is_(None), literal("")
    used = _w.posted_nano_usd - _w.credited_nano_usd
    # A row that is still in another month has nothing of this one.
    now = and_(alive, _w.month == this_month())
    return {
        (False, "total"): _Limit(
            "total", workspaces, no_key, _w.spend_limit_nano_usd, used, literal(""), alive
        ),
        (False, "month"): _Limit(
            "month", workspaces, no_key, _w.monthly_limit_nano_usd, _w.month_posted_nano_usd, _w.month, now
        ),
    }


def _of_keys() -> dict[tuple[bool, Span], _Limit]:
    in_projects = api_keys.join(projects, projects.c.id == _k.project_id)
    rows = in_projects.join(workspaces, workspaces.c.id == projects.c.workspace_id)
    alive = and_(_w.revoked_at.is_(None), projects.c.revoked_at.is_(None))
    now = and_(alive, _k.month == this_month())
    return {
        (True, "total"): _Limit(
            "total", rows, _k.id, _k.spend_limit_nano_usd, _k.posted_nano_usd, literal(""), alive
        ),
        (True, "month"): _Limit(
            "month", rows, _k.id, _k.monthly_limit_nano_usd, _k.month_posted_nano_usd, _k.month, now
        ),
    }


def _announced(of: _Limit, percent: ColumnElement[int]) -> ColumnElement[bool]:
    same = and_(_a.workspace_id == _w.id, _a.key_id == of.key_id, _a.span == of.span, _a.month == of.month)
    looked = exists().where(same, _a.limit_nano_usd == of.limit, _a.percent == percent)
    return looked.correlate_except(limit_alerts)


_LIMITS = {**_of_workspaces(), **_of_keys()}


def _mark(connection: Connection, one: Reached) -> bool:
    """False where another server has announced it."""
    row = {
        "workspace_id": one.workspace_id,
        "key_id": one.key_id,
        "span": one.span,
        "month": one.month,
        "limit_nano_usd": one.limit_nano_usd,
        "percent": one.percent,
    }
    make = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    marking = make(limit_alerts).values(reached_at=now_s(), **row).on_conflict_do_nothing()
    return connection.execute(marking).rowcount == 1


def _data(one: Reached) -> dict[str, Any]:
    return {
        "workspace_id": one.workspace_id,
        "workspace_name": one.workspace_name,
        "key_id": one.key_id or None,
        "span": one.span,
        "month": one.month or None,
        "percent": one.percent,
        "limit_nano_usd": one.limit_nano_usd,
        "limit_usd": exact_usd(one.limit_nano_usd),
        "used_nano_usd": one.used_nano_usd,
        "used_usd": exact_usd(one.used_nano_usd),
        "requests_refused": one.refused,
    }


# A month is over on every server by then, whatever its clock.
MONTHS_KEPT = timedelta(days=40)
KEPT_S = 400 * 86_400.0
DELETED_AT_ONCE = 1000

_ID = tuple_(*limit_alerts.primary_key.columns)


def has_old_alerts(connection: Connection) -> bool:
    """True where there is something to delete."""
    return bool(connection.execute(select(exists().where(_old(connection)))).scalar_one())


def forget_old_alerts(connection: Connection) -> int:
    """Deletes some; how many. There may be more."""
    some = select(*limit_alerts.primary_key.columns).where(_old(connection)).limit(DELETED_AT_ONCE)
    return connection.execute(delete(limit_alerts).where(_ID.in_(some))).rowcount


def _old(connection: Connection) -> ColumnElement[bool]:
    now = datetime.fromtimestamp(connection.execute(select(now_s())).scalar_one(), UTC)
    of_workspace = exists().where(_w.id == _a.workspace_id, _w.spend_limit_nano_usd == _a.limit_nano_usd)
    of_key = exists().where(_k.id == _a.key_id, _k.spend_limit_nano_usd == _a.limit_nano_usd)
    in_force = or_(
        and_(_a.key_id == "", of_workspace.correlate(limit_alerts)), of_key.correlate(limit_alerts)
    )
    return or_(
        and_(_a.span == "month", _a.month < month_of(now - MONTHS_KEPT)),
        and_(_a.span == "total", _a.reached_at < now.timestamp() - KEPT_S, ~in_force),
    )


MOST_TURNS = 50


class LimitWatch:
    """Announces which limits and budgets are 50, 80 and 100% used. Any number of servers may do so at once."""

    def __init__(self, database: Database, refusals: Refusals) -> None:
        self._database = database
        self._refusals = refusals

    async def once(self) -> int:
        """Number of announcements made. Raises `LedgerUnavailable`."""
        count = 0
        if await self._database.read(has_fallen):
            await self._database.write(PatientWork(forget_fallen))
        for _ in range(MOST_TURNS):
            reached = await self._database.read(newly_reached)
            if not reached:
                break
            # What was read is announced as it was read: the balance may have moved on since.
            announcing = partial(announce, reached=reached)
            count += await self._database.write(PatientWork(announcing))
        # Each costs a statement: in parts, and after those that only reading finds.
        for _ in range(MOST_TURNS):
            refused = self._refusals.take(AT_ONCE)
            if not refused:
                break
            count += await self._announce_refused(refused)
        return count + await self._announce_budgets()

    async def _announce_budgets(self) -> int:
        count = 0
        for _ in range(MOST_TURNS):
            workspace_id = await self._database.read(budget_alerts.workspace_due)
            if workspace_id is None:
                break
            announcing = partial(budget_alerts.announce, workspace_id=workspace_id)
            count += await self._database.write(PatientWork(announcing))
        return count

    async def _announce_refused(self, refused: Sequence[RefusedLimit]) -> int:
        reached = await self._database.read(partial(newly_refused, refused=refused))
        if not reached:
            return 0
        return await self._database.write(PatientWork(partial(announce, reached=reached)))


async def tidy(database: Database, waiting: Callable[[int], None]) -> None:
    """Deletes what is old, and tells `waiting` how many deliveries wait. Raises `LedgerUnavailable`."""
    for _ in range(MOST_TURNS):
        if await database.write(PatientWork(outbox.tidy)) < outbox.DELETED_AT_ONCE:
            break
    if await database.read(has_old_alerts):
        for _ in range(MOST_TURNS):
            if await database.write(PatientWork(forget_old_alerts)) < DELETED_AT_ONCE:
                break
    waiting(await database.read(outbox.count_waiting))
