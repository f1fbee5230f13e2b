"""The SQL of archived months: which comes next, and each step of one, as one transaction.

A month goes from `sealed` (its events count, and no event is added) to `dropping` (what is kept of them counts, and
they may be deleted) to `dropped`. Nothing goes back."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from sqlalchemy import Connection, Select, delete, exists, func, insert, select, text, update
from sqlalchemy.engine import Row

from billing.accounts import audit_log
from billing.accounts.audit_log import AuditEntry
from billing.archive.month_files import Key, Manifest, Reread
from billing.errors import ArchiveRefused
from billing.rollups import checkpoint_sql
from billing.rollups.archived import KEY
from billing.rollups.checkpoint_sql import Stretch, Sum
from billing.rollups.partitions import PATIENCE_MS, day_of, following, id_of_day, month_of_day
from billing.rollups.usage_sums import CHARGED
from billing.store.dates import now_s
from billing.store.log_tables import log_pending
from billing.store.rollup_tables import (
    SUMS,
    archived_days,
    archived_months,
    archived_refunds,
    checkpoint_sums,
    event_checkpoints,
)
from billing.store.schema import adjustments, holds, usage_events

_e, _m, _c, _s = usage_events.c, archived_months.c, event_checkpoints.c, checkpoint_sums.c
_d = archived_days.c


@dataclass(frozen=True, slots=True)
class Month:
    """Ids from `from_id` to before `until_id`. `state` is None where nothing was done yet."""

    month: str
    from_id: str
    until_id: str
    state: str | None = None
    manifest: str | None = None


def now_of(connection: Connection) -> datetime:
    """By the database's clock."""
    return datetime.fromtimestamp(connection.execute(select(now_s())).scalar_one(), UTC)


def first_kept(now: datetime, keep_months: int) -> date:
    """The first day of the oldest month that stays: so many whole months before the present one."""
    months = now.year * 12 + now.month - 1 - keep_months
    return date(months // 12, months % 12 + 1, 1)


def unfinished(connection: Connection) -> Month | None:
    """The one that a run before this did not end."""
    columns = (_m.month, _m.from_id, _m.until_id, _m.state, _m.manifest)
    row = connection.execute(select(*columns).where(_m.state != "dropped")).one_or_none()
    return None if row is None else Month(*row)


def due(connection: Connection, after: str, keep_months: int) -> Month | None:
    """The first month with events from the id `after` on, if the policy gives it up. A stretch that begins with a month
    without events may reach into the months after it: then they are archived together."""
    first = connection.execute(
        select(_e.event_id).where(_e.event_id >= after).order_by(_e.event_id).limit(1)
    ).scalar()
    day = None if first is None else day_of(first)
    kept = first_kept(now_of(connection), keep_months)
    if day is None or day >= kept:
        return None
    month = month_of_day(day)
    until = id_of_day(following(month))
    ending = select(func.min(_c.until_id)).where(_c.until_id >= until)
    until = connection.execute(ending).scalar() or until
    return Month(f"{month:%Y-%m}", after, until) if until <= id_of_day(kept) else None


def count_events(connection: Connection, month: Month) -> int:
    return connection.execute(select(func.count()).select_from(usage_events).where(_in(month))).scalar_one()


def require_ready(connection: Connection, month: Month) -> None:
    """Raises `ArchiveRefused`."""
    held = connection.execute(
        select(func.count()).select_from(holds).where(holds.c.event_id < month.until_id)
    ).scalar_one()
    if held:
        raise ArchiveRefused(
            f"{month.month}: {held} of its requests still hold money: run a server, which ends them"
        )
    require_logged(connection, month)
    require_proven(connection, month)


def require_logged(connection: Connection, month: Month) -> None:
    """Raises `ArchiveRefused` where events of it wait for the transparency log."""
    waits = (log_pending.c.id >= month.from_id, log_pending.c.id < month.until_id)
    number = connection.execute(select(func.count()).select_from(log_pending).where(*waits)).scalar_one()
    if number:
        raise ArchiveRefused(
            f"{month.month}: {number} of its events wait for the transparency log: run a server, which puts them there"
        )


def require_proven(connection: Connection, month: Month) -> list[Stretch]:
    """The stretches that the month consists of, all proven. Raises `ArchiveRefused`."""
    found = [
        one
        for one in checkpoint_sql.stretches(connection)
        if month.from_id <= one.from_id and (one.until_id or "") <= month.until_id
    ]
    ends = [month.from_id, *(one.until_id or "" for one in found)]
    is_whole = ends[-1] == month.until_id and [one.from_id for one in found] == ends[:-1]
    if not is_whole or any(one.digest is None for one in found):
        raise ArchiveRefused(
            f"{month.month}: not all of its events are proven; pith reconcile says which are wrong"
        )
    return found


def seal(connection: Connection, month: Month, actor: str) -> None:
    """From here on the database refuses events of it."""
    now = now_of(connection)
    connection.execute(
        insert(archived_months).values(
            month=month.month, from_id=month.from_id, until_id=month.until_id, state="sealed", sealed_at=now
        )
    )
    _note(connection, now, actor, "archive.seal", month.month, {})


def sums_of_stretches(connection: Connection, month: Month) -> list[Sum]:
    """The sums that were proven of it, by workspace and month charged."""
    sums = (func.sum(_s[name]) for name in ("events", "charged_nano_usd", "written_off_nano_usd"))
    statement = (
        select(_s.workspace_id, _s.month, *sums)
        .where(_s.from_id >= month.from_id, _s.from_id < month.until_id)
        .group_by(_s.workspace_id, _s.month)
        .order_by(_s.workspace_id, _s.month)
    )
    return [Sum(row[0], row[1], *map(int, row[2:])) for row in connection.execute(statement)]


def page(
    connection: Connection, month: Month, *, first: str, last: str, after: str | None, limit: int
) -> Sequence[Row[Any]]:
    """The next events of the workspaces from one id to another. Raises `ArchiveRefused` where another run has gone on,
    and may have deleted some of them."""
    statement = select(usage_events).where(_in(month), _e.workspace_id.between(first, last))
    if after is not None:
        statement = statement.where(_e.event_id > after)
    rows = connection.execute(statement.order_by(_e.event_id).limit(limit)).all()
    # After the events: where it is still sealed, none was deleted before.
    _require_sealed(connection, select(_m.state), month)
    return rows


def clear_days(connection: Connection, month: Month) -> None:
    """Deletes those of a run that died while it wrote them. Raises `ArchiveRefused` where another run has gone on."""
    _lock_sealed(connection, month)
    connection.execute(delete(archived_days).where(archived_days.c.archived_month == month.month))


def add_days(connection: Connection, month: Month, days: Sequence[tuple[Key, Sequence[int]]]) -> None:
    """Raises `ArchiveRefused` where another run has gone on."""
    _lock_sealed(connection, month)
    rows = [
        {
            "archived_month": month.month,
            **dict(zip(KEY, key, strict=True)),
            **dict(zip(SUMS, sums, strict=True)),
        }
        for key, sums in days
    ]
    connection.execute(insert(archived_days), rows)


def give_up(connection: Connection, month: Month, manifest: Manifest, found: Reread, actor: str) -> None:
    """The moment from which on what is kept counts and the events do not. Raises `ArchiveRefused` where its stretches
    are not those that the files were compared with."""
    proven = [
        (one.from_id, one.until_id, one.digest, one.events) for one in require_proven(connection, month)
    ]
    if proven != list(manifest.stretches):
        raise ArchiveRefused(f"{month.month}: its events changed while it was written; run this again")
    require_logged(connection, month)
    _lock_sealed(connection, month)
    if _kept(connection, month) != sorted(manifest.sums):
        raise ArchiveRefused(f"{month.month}: another run is at work on it; run this again")
    now = now_of(connection)
    _keep_refunds(connection, month)
    connection.execute(
        delete(checkpoint_sums).where(_s.from_id >= month.from_id, _s.from_id < month.until_id)
    )
    connection.execute(
        delete(event_checkpoints).where(_c.from_id >= month.from_id, _c.from_id < month.until_id)
    )
    figures = {
        "events": found.events,
        "charged_nano_usd": sum(sums[3] for sums in manifest.sums),
        "written_off_nano_usd": sum(sums[4] for sums in manifest.sums),
    }
    changed = {**figures, "last_settled_at": found.last_settled_at, "manifest": manifest.as_json()}
    _move(connection, month, "sealed", {"state": "dropping", "archived_at": now, **changed})
    files = {file.name: file.sha256 for file in manifest.files}
    _note(connection, now, actor, "archive.drop", month.month, {**figures, "sha256": files})


def _kept(connection: Connection, month: Month) -> list[tuple[Any, ...]]:
    """What `archived_days` adds up to, as the manifest has it."""
    sums = (func.sum(_d[name]) for name in ("requests", "cost_nano_usd", "written_off_nano_usd"))
    statement = select(_d.workspace_id, _d.month, *sums).where(_d.archived_month == month.month)
    rows = connection.execute(statement.group_by(_d.workspace_id, _d.month)).all()
    return sorted((row[0], row[1], *map(int, row[2:])) for row in rows)


def _lock_sealed(connection: Connection, month: Month) -> None:
    _require_sealed(connection, select(_m.state).with_for_update(), month)


def _require_sealed(connection: Connection, state: Select[Any], month: Month) -> None:
    if connection.execute(state.where(_m.month == month.month)).scalar() != "sealed":
        raise ArchiveRefused(f"{month.month}: another run has gone on with it")


def _keep_refunds(connection: Connection, month: Month) -> None:
    refunded = exists().where(adjustments.c.event_id == _e.event_id)
    found = select(_e.event_id, _e.workspace_id, CHARGED).where(_in(month), refunded)
    # The refunds of the month are read first: they are few.
    some = select(adjustments.c.event_id).where(
        adjustments.c.event_id >= month.from_id, adjustments.c.event_id < month.until_id
    )
    names = ["event_id", "workspace_id", "charged_nano_usd"]
    connection.execute(insert(archived_refunds).from_select(names, found.where(_e.event_id.in_(some))))


def delete_events(connection: Connection, month: Month, limit: int) -> int:
    """The next `limit` of a month that is being dropped; how many there were."""
    some = select(_e.event_id).where(_in(month)).order_by(_e.event_id).limit(limit)
    ids = connection.execute(some).scalars().all()
    if ids:
        within = (_e.event_id >= ids[0], _e.event_id <= ids[-1])
        connection.execute(delete(usage_events).where(_in(month), *within))
    return len(ids)


def end(connection: Connection, month: Month, actor: str) -> None:
    """None of its events is left. Raises `ArchiveRefused` where one is."""
    if connection.execute(select(_e.event_id).where(_in(month)).limit(1)).first() is not None:
        raise ArchiveRefused(f"{month.month}: not all of its events are deleted yet; run this again")
    _move(connection, month, "dropping", {"state": "dropped"})
    _note(connection, now_of(connection), actor, "archive.end", month.month, {})


def _move(connection: Connection, month: Month, state: str, values: dict[str, Any]) -> None:
    moving = update(archived_months).where(_m.month == month.month, _m.state == state).values(values)
    if connection.execute(moving).rowcount != 1:
        raise ArchiveRefused(f"{month.month}: another run has gone on with it")


def _note(
    connection: Connection, now: datetime, actor: str, action: str, subject: str, details: dict[str, Any]
) -> None:
    audit_log.record(connection, AuditEntry(now, actor, action, None, subject, details))


def _in(month: Month) -> Any:
    return (_e.event_id >= month.from_id) & (_e.event_id < month.until_id)


_TABLES = text(
    "SELECT c.oid::regclass::text AS name, pg_get_expr(c.relpartbound, c.oid) AS bounds FROM pg_inherits i "
    "JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'usage_events'::regclass ORDER BY 1"
)


def tables_of(connection: Connection, month: Month) -> list[str]:
    """Not that of the months before the first with a table of its own, nor that for the rest: what comes late to an
    archived month lies there."""
    if connection.dialect.name == "sqlite":
        return []
    return [row.name for row in connection.execute(_TABLES) if _is_within(row.bounds, month)]


def drop_table(connection: Connection, name: str) -> None:
    """Requests wait for this while it waits for those under way: never longer than `PATIENCE_MS`, then it fails."""
    connection.execute(text(f"SET LOCAL lock_timeout = {PATIENCE_MS}"))
    connection.execute(text(f"ALTER TABLE usage_events DETACH PARTITION {name}"))
    connection.execute(text(f"DROP TABLE {name}"))


def _is_within(bounds: str, month: Month) -> bool:
    if bounds == "DEFAULT" or "MINVALUE" in bounds:
        return False
    first, last = bounds.removeprefix("FOR VALUES FROM (").removesuffix(")").split(") TO (")
    return month.from_id <= first.strip("'") and last.strip("'") <= month.until_id
