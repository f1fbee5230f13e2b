"""The SQL of checkpoints: stretches of events whose sums and digest were taken, and what was not proven yet."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, case, delete, func, insert, literal, or_, select, text, true, update
from sqlalchemy.sql.elements import ColumnElement

from billing.rollups.archived import archived_until, dropped_until
from billing.rollups.partitions import day_of, following, id_of_day, month_of_day
from billing.store.dates import now_s
from billing.store.rollup_tables import checkpoint_sums, event_checkpoints
from billing.store.schema import usage_events

_e, _c = usage_events.c, event_checkpoints.c
# A day is read once it has been over for so long: what arrives later is found, but read again.
SETTLED_AFTER = timedelta(days=1)
STRETCHES_AT_ONCE = 200
# Of one that is longer than a day.
EVENTS_IN_ONE = 20_000
# Any constant would do: two proofs that begin stretches at once would begin them twice.
_ADVISORY_LOCK = 0x70697469


@dataclass(frozen=True, slots=True)
class Stretch:
    """Event ids from `from_id` to before `until_id`. `digest` is None where its events are to be proven."""

    from_id: str
    # None: without an end.
    until_id: str | None
    version: int = 0
    digest: str | None = None
    events: int = 0


@dataclass(frozen=True, slots=True)
class Sum:
    """What the events of a workspace add up to that were charged to one month."""

    workspace_id: str
    month: str
    events: int
    charged_nano_usd: int
    written_off_nano_usd: int


def extend(connection: Connection) -> list[Stretch]:
    """The days that ended since the last of the stretches, as stretches without a gap between them: whole days of one
    month, as many as have `EVENTS_IN_ONE` together, and what is empty before a month. At most `STRETCHES_AT_ONCE`."""
    now = datetime.fromtimestamp(connection.execute(select(now_s())).scalar_one(), UTC)
    end = id_of_day((now - SETTLED_AFTER).date())
    begin, found = open_from(connection), list[Stretch]()
    in_order = select(_e.event_id).order_by(_e.event_id).limit(1)
    while len(found) < STRETCHES_AT_ONCE:
        after = in_order.where(_e.event_id >= begin, _e.event_id < end)
        first = connection.execute(after).scalar()
        if first is None:
            break
        last = connection.execute(after.offset(EVENTS_IN_ONE)).scalar()
        until = _until(begin, first, last, end)
        found.append(Stretch(begin, until))
        begin = until
    return found


def _until(begin: str, first: str, last: str | None, end: str) -> str:
    """Where a stretch ends that begins with `begin`; its first event is `first`, and `last` the first one too many."""
    day, month = None if last is None else day_of(last), day_of(first)
    until = end if day is None else min(end, id_of_day(day + timedelta(days=1)))
    if month is None:
        return until
    # A month is archived as a whole, so no stretch has parts of two.
    its_first = id_of_day(month_of_day(month))
    return its_first if begin < its_first else min(until, id_of_day(following(month_of_day(month))))


def begin(connection: Connection, stretches: Sequence[Stretch]) -> bool:
    """From here on, the database notes events that arrive in them. False where another proof has begun some of them:
    then nothing is written."""
    if connection.dialect.name != "sqlite":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
    if open_from(connection) != stretches[0].from_id:
        return False
    rows = [
        {
            "from_id": one.from_id,
            "until_id": one.until_id,
            "version": 0,
            "digest": None,
            "events": 0,
            "read_number": 0,
        }
        for one in stretches
    ]
    connection.execute(insert(event_checkpoints), rows)
    return True


def mark(connection: Connection) -> int | None:
    """On PostgreSQL, the number of this transaction: whatever had written before it began has a lower one. That of the
    transaction that began the stretches would not do: one that came after it may have written before it was committed.
    None on SQLite, which has one writer."""
    if connection.dialect.name == "sqlite":
        return None
    number: int = connection.execute(text("SELECT pg_current_xact_id()::text::bigint")).scalar_one()
    return number


def is_over(connection: Connection, transaction: int) -> bool:
    """True once that one has ended, and every one with a lower number."""
    oldest = connection.execute(text("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"))
    return bool(oldest.scalar_one() > transaction)


def stretches(connection: Connection, *where: ColumnElement[bool]) -> list[Stretch]:
    columns = (_c.from_id, _c.until_id, _c.version, _c.digest, _c.events)
    return [Stretch(*row) for row in connection.execute(select(*columns).where(*where).order_by(_c.from_id))]


def unproven(connection: Connection) -> list[Stretch]:
    return stretches(connection, _c.digest.is_(None))


def least_recent(connection: Connection) -> Stretch | None:
    """The one whose events were not read for the longest time."""
    columns = (_c.from_id, _c.until_id, _c.version, _c.digest, _c.events)
    oldest = select(*columns).where(_c.digest.is_not(None), _c.read_number >= 0, _c.events > 0)
    row = connection.execute(oldest.order_by(_c.read_number).limit(1)).one_or_none()
    return None if row is None else Stretch(*row)


def known_changed(connection: Connection) -> list[Stretch]:
    """Those whose events were others than those that were proven when they were read last."""
    return stretches(connection, _c.digest.is_not(None), _c.read_number < 0)


def open_from(connection: Connection) -> str:
    """The first id that is in no stretch."""
    last = connection.execute(select(_c.until_id).order_by(_c.from_id.desc()).limit(1)).scalar()
    return last or archived_until(connection)


def keep(connection: Connection, stretch: Stretch, digest: str, events: int, sums: Sequence[Sum]) -> bool:
    """Proven as it is now; False where an event arrived in it meanwhile, and then nothing is kept."""
    values = {"digest": digest, "events": events, "read_number": _next_read()}
    same = (_c.from_id == stretch.from_id, _c.version == stretch.version)
    if connection.execute(update(event_checkpoints).where(*same).values(values)).rowcount != 1:
        return False
    connection.execute(delete(checkpoint_sums).where(checkpoint_sums.c.from_id == stretch.from_id))
    rows = [
        {
            "from_id": stretch.from_id,
            "workspace_id": one.workspace_id,
            "month": one.month,
            "events": one.events,
            "charged_nano_usd": one.charged_nano_usd,
            "written_off_nano_usd": one.written_off_nano_usd,
        }
        for one in sums
    ]
    if rows:
        connection.execute(insert(checkpoint_sums), rows)
    return True


def note_read(connection: Connection, stretch: Stretch, *, is_changed: bool) -> None:
    """`is_changed`: every proof reads it, until its events are those that were proven."""
    number = literal(-1) if is_changed else _next_read()
    connection.execute(
        update(event_checkpoints).where(_c.from_id == stretch.from_id).values(read_number=number)
    )


def _next_read() -> ColumnElement[int]:
    last = func.max(event_checkpoints.alias("any").c.read_number)
    return select(case((last > 0, last), else_=0) + 1).scalar_subquery()


def kept_sums(connection: Connection, stretch: Stretch) -> list[Sum] | None:
    """None where an event arrived in it since it was read."""
    same = select(_c.from_id).where(_c.from_id == stretch.from_id, _c.version == stretch.version)
    if connection.execute(same).first() is None:
        return None
    s = checkpoint_sums.c
    columns = (s.workspace_id, s.month, s.events, s.charged_nano_usd, s.written_off_nano_usd)
    return [Sum(*row) for row in connection.execute(select(*columns).where(s.from_id == stretch.from_id))]


def forget(connection: Connection, from_ids: Collection[str]) -> None:
    """Make these stretches unproven: their events count as they are, and are proven anew."""
    for from_id in from_ids:
        values = {"version": _c.version + 1, "digest": None, "read_number": 0}
        connection.execute(update(event_checkpoints).where(_c.from_id == from_id).values(values))


def within(from_id: str, until_id: str | None) -> ColumnElement[bool]:
    """Condition on events: ids from one to before another, or all from one on. No text is above every id in every
    collation that PostgreSQL may have."""
    begun = _e.event_id >= from_id
    return begun if until_id is None else begun & (_e.event_id < until_id)


def not_proven(connection: Connection, distrusted: Collection[str] = ()) -> ColumnElement[bool]:
    """Condition on events: in no stretch whose sums were taken, nor in an archived month unless they came late. A
    `distrusted` stretch, by where it begins, counts as one whose sums were not."""
    ranges: list[list[str | None]] = []
    for one in stretches(connection, or_(_c.digest.is_(None), _c.from_id.in_(distrusted))):
        if ranges and ranges[-1][1] == one.from_id:
            ranges[-1][1] = one.until_id
        else:
            ranges.append([one.from_id, one.until_id])
    begin, late = open_from(connection), dropped_until(connection)
    parts = [within(first or "", last) for first, last in ranges]
    if late:
        parts.append(_e.event_id < late)
    return or_(*parts, within(begin, None)) if begin else true()
