"""Usage and its cost, summed by what is asked for: workspace, project, key, model, route, day, month, person, tag."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, Connection, FromClause, Subquery, Table, and_, case, func, or_, select

from billing.accounts import account_sql
from billing.books.saving import Dimension
from billing.rollups.usage_sums import Wanted, label_of, summed
from billing.store.batch_tables import batch_lines, batches
from billing.store.database import use_one_snapshot
from billing.store.dates import this_month
from billing.store.rollup_tables import SUMS
from billing.store.schema import api_keys, projects, usage_events, workspaces

_e = usage_events.c
_ACCOUNTS: Mapping[str, Table] = {"workspace": workspaces, "project": projects, "key": api_keys}
_COLUMNS = {"workspace": "workspace_id", "project": "project_id", "key": "key_id", "model": "model_id"}


@dataclass(frozen=True, slots=True)
class UsageSum:
    """`group` names what the sums are of, in the order asked for: ids with their names, models, days."""

    group: Mapping[str, str]
    requests: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    # What was charged, without what was written off.
    cost_nano_usd: int
    written_off_nano_usd: int = 0
    # Of chats whose prompts were compressed, by their own events. What the compression was charged is in the cost of
    # its model's events too: here it stands beside what it saved.
    tokens_saved: int = 0
    saved_nano_usd: int = 0
    compression_nano_usd: int = 0

    @property
    def has_savings(self) -> bool:
        return any((self.tokens_saved, self.saved_nano_usd, self.compression_nano_usd))

    @property
    def net_saved_nano_usd(self) -> int:
        return self.saved_nano_usd - self.compression_nano_usd


def total(sums: Iterable[UsageSum]) -> UsageSum:
    """The sum of all groups."""
    amounts = [astuple(line)[1:] for line in sums]
    return UsageSum({}, *map(sum, zip(*amounts, strict=True))) if amounts else UsageSum({}, 0, 0, 0, 0, 0)


def usage(
    connection: Connection,
    by: Sequence[Dimension],
    *,
    workspace: str | None = None,
    project: str | None = None,
    key_id: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    charged_in: str | None = None,
    limit: int | None = None,
) -> list[UsageSum]:
    """Sums of the events settled from `since` to before `until`, or charged in one month: one row per group, in the
    groups' order, the first `limit` of them. By person or tag the most expensive come first, and an event counts for
    each of its tags.

    They are read from sums by month and by day; events are read only of the days that `since` and `until` cut. Without
    a dimension there is one row, of zeros where nothing was used. Raises `UnknownAccount` and `UnknownSum`.
    """
    owner = None if workspace is None else account_sql.find_workspace(connection, workspace).id
    project_id = None if project is None else account_sql.find_project(connection, project).id
    wanted = Wanted(owner, project_id, key_id, since, until, charged_in)
    columns = [column_of(name) for name in by]
    rows = summed(connection, columns, wanted)
    inner = _added_up(rows, columns)
    groups, source = named(inner, by)
    rows_by_name = select(*groups, *(inner.c[name] for name in SUMS)).select_from(source)
    order = groups if label_of(by) is None else [inner.c.cost_nano_usd.desc(), *groups]
    found = connection.execute(rows_by_name.order_by(*order).limit(limit))
    return [_sum(row._mapping, [group.name for group in groups]) for row in found]


def _added_up(rows: Subquery, columns: Sequence[str]) -> Subquery:
    """Before names are looked up: there are fewer rows then."""
    sums = [func.coalesce(func.sum(rows.c[name]), 0).label(name) for name in SUMS]
    return (
        select(*(rows.c[name] for name in columns), *sums)
        .group_by(*(rows.c[name] for name in columns))
        .subquery()
    )


def column_of(name: Dimension) -> str:
    """The column of events and of their sums."""
    return _COLUMNS.get(name, name)


def named(inner: Subquery, by: Sequence[Dimension]) -> tuple[list[Any], FromClause]:
    """Columns that name a row of `inner`, whose own are by `column_of`, and where the names come from."""
    groups: list[Any] = []
    source: FromClause = inner
    for name in by:
        table = _ACCOUNTS.get(name)
        column = inner.c[column_of(name)]
        if table is None:
            groups.append(column.label(name))
            continue
        source = source.join(table, table.c.id == column)
        groups += [table.c.name.label(name), column]
    return groups, source


def _sum(fields: Mapping[Any, Any], groups: Sequence[str]) -> UsageSum:
    # PostgreSQL sums integers into a NUMERIC.
    sums = {name: int(fields[name]) for name in SUMS}
    return UsageSum({name: fields[name] for name in groups}, **sums)


@dataclass(frozen=True, slots=True)
class PeriodUsage:
    """`groups` are in their order, and at most as many as were asked for."""

    total: UsageSum
    groups: tuple[UsageSum, ...]


def period_usage(
    connection: Connection,
    by: Sequence[Dimension],
    *,
    workspace_id: str,
    project_id: str,
    key_id: str | None,
    since: datetime,
    until: datetime,
    limit: int,
) -> PeriodUsage:
    """Usage of one key, or of all keys of the project where `key_id` is None. Call it first in a transaction:
    a settlement between two reads would be in the groups and not in the total."""
    use_one_snapshot(connection)
    read = partial(
        usage,
        connection,
        workspace=workspace_id,
        project=project_id,
        key_id=key_id,
        since=since,
        until=until,
    )
    (total,) = read(())
    return PeriodUsage(total, tuple(read(by, limit=limit)) if by else ())


UNFINISHED = ("validating", "in_progress", "finalizing", "cancelling")
LINE_STATES = ("waiting", "completed", "failed")
PERCENT = (80, 100)


@dataclass(frozen=True, slots=True)
class Glance:
    """`batches`: unfinished ones by status; `lines`: theirs by state. `limited`: workspaces with a limit; `spent`: how
    many of them have spent at least so many percent of one."""

    batches: Mapping[str, int]
    lines: Mapping[str, int]
    limited: int
    spent: Mapping[int, int]


def glance(connection: Connection) -> Glance:
    by_status = select(batches.c.status, func.count()).where(batches.c.cleared.is_(False))
    statuses = {status: count for status, count in connection.execute(by_status.group_by(batches.c.status))}
    by_state = select(batch_lines.c.state, func.count()).group_by(batch_lines.c.state)
    states = {state: count for state, count in connection.execute(by_state)}
    limited, *spent = connection.execute(_near_limits()).one()
    return Glance(
        {status: statuses.get(status, 0) for status in UNFINISHED},
        {state: states.get(state, 0) for state in LINE_STATES},
        limited,
        dict(zip(PERCENT, spent, strict=True)),
    )


def _near_limits() -> Any:
    w = workspaces.c
    in_month = case((w.month == this_month(), w.month_posted_nano_usd), else_=0)
    # Credits make room again; those of this month are in its sum already.
    in_all = w.posted_nano_usd - w.credited_nano_usd
    total_limit, month_limit = w.spend_limit_nano_usd, w.monthly_limit_nano_usd
    limited = or_(total_limit.is_not(None), month_limit.is_not(None))

    def spent(percent: int) -> ColumnElement[bool]:
        # The limit is divided first: its hundredfold may not fit in the column's type.
        return or_(
            and_(total_limit.is_not(None), in_all >= total_limit / 100 * percent),
            and_(month_limit.is_not(None), in_month >= month_limit / 100 * percent),
        )

    def count(condition: ColumnElement[bool]) -> ColumnElement[int]:
        return func.coalesce(func.sum(case((condition, 1), else_=0)), 0)

    counts = [count(limited), *(count(spent(percent)) for percent in PERCENT)]
    return select(*counts).where(w.revoked_at.is_(None))


def month_of_tenants(connection: Connection, top: int) -> tuple[Mapping[str, UsageSum], UsageSum]:
    """Charges of this month, by the database's clock: of the `top` workspaces by cost, under their names, and
    of all others together, those that were revoked among them."""
    month = connection.execute(select(this_month())).scalar_one()
    found = usage(connection, ["workspace"], charged_in=month)
    there = select(workspaces.c.name).where(workspaces.c.revoked_at.is_(None))
    names = set(connection.execute(there).scalars())
    found.sort(key=lambda line: (line.group["workspace"] not in names, -line.cost_nano_usd))
    named = [line for line in found[:top] if line.group["workspace"] in names]
    return {line.group["workspace"]: line for line in named}, total(found[len(named) :])
