"""The SQL of batches: made, listed, cancelled; and the work that one process at a time does for one: to validate its
input and to write its files."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    and_,
    case,
    delete,
    false,
    func,
    insert,
    or_,
    select,
    update,
)

from billing.batches import file_sql
from billing.batches.batch import (
    ENDED,
    Batch,
    BatchEnd,
    BatchEnded,
    BatchStatus,
    Counts,
    Home,
    LostClaim,
    Moments,
    NewBatch,
    StoredElsewhere,
    TooManyBatches,
    UnknownBatch,
)
from billing.store.batch_tables import batch_files, batch_lines, batches
from billing.store.dates import now_s
from billing.store.schema import projects

LINES_AT_ONCE = 1000
# Of one project, of those that have ended; and how many of the rest are deleted with each that is made.
MOST_ENDED = 1000
FORGOTTEN_AT_ONCE = 100
_b = batches.c
_l = batch_lines.c
# Batches that are over are many, and no work: an index leaves them out.
alive = _b.cleared == false()
_FREE: dict[str, Any] = {"worker": None, "leased_until": 0}
MOMENTS = ("in_progress", "finalizing", "completed", "failed", "cancelling", "cancelled", "expired")


def make(connection: Connection, new: NewBatch, home: Home, *, most_unfinished: int) -> Batch:
    """Raises `UnknownFile` or `StoredElsewhere` of its input, or `TooManyBatches`."""
    # Locked, so that two requests at once do not pass the bound together.
    connection.execute(select(projects.c.id).where(projects.c.id == new.project_id).with_for_update())
    if unfinished_of(connection, new.project_id) >= most_unfinished:
        raise TooManyBatches(most_unfinished)
    # Locked, so that nobody deletes the file before the batch that reads it is there.
    read = file_sql.find(connection, new.project_id, new.input_file_id, lock=True)
    if read.store != home.store:
        raise StoredElsewhere(read.id, read.store, home.store)
    connection.execute(
        insert(batches).values(
            id=new.id,
            project_id=new.project_id,
            key_id=new.key_id,
            input_file_id=new.input_file_id,
            endpoint=new.endpoint,
            completion_window=new.completion_window,
            metadata_json=new.metadata,
            pricing_version=new.pricing_version,
            price_ppm=new.price_ppm,
            status="validating",
            ends_as="completed",
            leased_until=0,
            created_at=now_s(),
            expires_at=now_s() + new.window_s,
            cleared=False,
            store=home.store,
            deployment=home.deployment,
            **dict.fromkeys(_FIGURES, 0),
        )
    )
    _forget_oldest(connection, new.project_id)
    return find(connection, new.project_id, new.id)


def _forget_oldest(connection: Connection, project_id: str) -> None:
    """Of a project's batches that are over, the newest alone are kept: what a row holds is the caller's to choose."""
    over = select(_b.id).where(_b.project_id == project_id, _b.cleared, _b.status.in_(ENDED))
    old = over.order_by(_b.created_at.desc(), _b.id.desc()).offset(MOST_ENDED).limit(FORGOTTEN_AT_ONCE)
    forgotten = list(connection.execute(old).scalars())
    if forgotten:
        connection.execute(delete(batches).where(_b.id.in_(forgotten)))


def find(connection: Connection, project_id: str, batch_id: str) -> Batch:
    """Raises `UnknownBatch`."""
    row = connection.execute(
        select(batches).where(_b.id == batch_id, _b.project_id == project_id)
    ).one_or_none()
    if row is None:
        raise UnknownBatch(batch_id)
    return batches_of(connection, [row])[0]


def listed(connection: Connection, project_id: str, *, limit: int, after: str | None) -> list[Batch]:
    """The newest first; one more than `limit` where there are more. Raises `UnknownBatch` of `after`."""
    statement = select(batches).where(_b.project_id == project_id)
    if after is not None:
        last = find(connection, project_id, after)
        at = last.moments.created
        statement = statement.where(or_(_b.created_at < at, and_(_b.created_at == at, _b.id < last.id)))
    newest = statement.order_by(_b.created_at.desc(), _b.id.desc()).limit(limit + 1)
    return batches_of(connection, connection.execute(newest).all())


def cancel(connection: Connection, project_id: str, batch_id: str) -> Batch:
    """Begins to cancel; again changes nothing. Raises `UnknownBatch` or `BatchEnded`."""
    batch = find(connection, project_id, batch_id)
    may = update(batches).where(_b.id == batch_id, _b.status.in_(("validating", "in_progress")))
    values = {"status": "cancelling", "ends_as": "cancelled", "cancelling_at": now_s(), **_FREE}
    if not connection.execute(may.values(values)).rowcount:
        batch = find(connection, project_id, batch_id)
        if batch.status != "cancelling":
            raise BatchEnded(batch_id, batch.status)
    return find(connection, project_id, batch_id)


def unfinished_of(connection: Connection, project_id: str) -> int:
    """Number of a project's batches that have not ended."""
    counting = select(func.count()).where(alive, _b.project_id == project_id, _b.status.not_in(ENDED))
    return int(connection.execute(counting).scalar_one())


def any_unfinished(connection: Connection) -> bool:
    """True while there is anything left to do, for any batch."""
    return connection.execute(select(_b.id).where(alive).limit(1)).first() is not None


def expire(connection: Connection) -> None:
    """Batches whose time is over begin to end."""
    late = and_(_b.expires_at <= now_s(), _b.ends_as == "completed")
    running = update(batches).where(alive, late, _b.status == "in_progress")
    connection.execute(running.values(ends_as="expired"))
    # Of one that is still being validated, nothing has run. Whoever validates it finds that it is theirs no longer.
    unread = update(batches).where(alive, late, _b.status == "validating")
    connection.execute(unread.values(status="finalizing", ends_as="expired", **_FREE))


def close_running(connection: Connection) -> None:
    """Batches of which no line is left to run, or to wait for, are to have their files written."""
    ending = or_(_b.status == "cancelling", and_(_b.status == "in_progress", _b.ends_as != "completed"))
    for row in connection.execute(select(_b.id, _b.ends_as).where(alive, ending)).all():
        _give_up_lines(connection, row.id, row.ends_as)
    has_waiting = select(_l.number).where(_l.batch_id == _b.id, _l.state == "waiting").exists()
    done = update(batches).where(alive, _b.status.in_(("in_progress", "cancelling")), ~has_waiting)
    connection.execute(done.values(status="finalizing", finalizing_at=now_s(), **_FREE))


def _give_up_lines(connection: Connection, batch_id: str, state: BatchEnd) -> None:
    """All that no attempt is running: a late one cannot end them any more."""
    idle = (
        (_l.batch_id == batch_id)
        & (_l.state == "waiting")
        & or_(_l.claim.is_(None), _l.claimable_at <= now_s())
    )
    connection.execute(update(batch_lines).where(idle).values(state=state, claim=None))


def clear_some(connection: Connection) -> bool:
    """Deletes some lines of a batch that has ended; whether there may be more."""
    ended = select(_b.id).where(alive, _b.status.in_(ENDED)).order_by(_b.created_at).limit(1)
    batch_id = connection.execute(ended.with_for_update(skip_locked=True)).scalar_one_or_none()
    if batch_id is None:
        return False
    if delete_lines(connection, batch_id) < LINES_AT_ONCE:
        connection.execute(update(batches).where(_b.id == batch_id).values(cleared=True))
    return True


def delete_lines(connection: Connection, batch_id: str) -> int:
    """Some of its lines; how many."""
    some = select(_l.number).where(_l.batch_id == batch_id).order_by(_l.number).limit(LINES_AT_ONCE)
    return connection.execute(
        delete(batch_lines).where(_l.batch_id == batch_id, _l.number.in_(some))
    ).rowcount


_FIGURES = (
    "lines",
    "lines_completed",
    "lines_failed",
    "prompt_tokens",
    "cached_tokens",
    "completion_tokens",
)


def counts_of(connection: Connection, batch_ids: Collection[str]) -> dict[str, Counts]:
    """Lines, without their tokens, of batches whose lines are still there: the index alone is read for them."""
    statement = select(_l.batch_id, _l.state, func.count()).where(_l.batch_id.in_(batch_ids))
    found: dict[str, Counts] = {}
    for batch_id, state, count in connection.execute(statement.group_by(_l.batch_id, _l.state)):
        counts = found.get(batch_id, Counts())
        found[batch_id] = replace(
            counts,
            total=counts.total + count,
            completed=counts.completed + count * (state == "completed"),
            failed=counts.failed + count * (state not in ("completed", "waiting")),
        )
    return found


def whole_counts_of(connection: Connection, batch_id: str) -> Counts:
    """With the tokens of its lines."""
    tokens = (func.sum(_l.prompt_tokens), func.sum(_l.cached_tokens), func.sum(_l.completion_tokens))
    row = connection.execute(select(*tokens).where(_l.batch_id == batch_id)).one()
    # PostgreSQL sums integers into a NUMERIC; of no lines the sum is NULL.
    prompt, cached, completion = (int(figure or 0) for figure in row)
    counts = counts_of(connection, [batch_id]).get(batch_id, Counts())
    return replace(counts, prompt_tokens=prompt, cached_tokens=cached, completion_tokens=completion)


def batches_of(connection: Connection, rows: Collection[Row[Any]]) -> list[Batch]:
    # While one is being validated, its lines are not all there yet.
    counting = [row.id for row in rows if row.status not in (*ENDED, "validating")]
    counted = counts_of(connection, counting)
    return [_batch(row, counted.get(row.id)) for row in rows]


def _batch(row: Row[Any], counted: Counts | None) -> Batch:
    new = NewBatch(
        id=row.id,
        project_id=row.project_id,
        key_id=row.key_id,
        input_file_id=row.input_file_id,
        endpoint=row.endpoint,
        completion_window=row.completion_window,
        metadata=row.metadata_json,
        pricing_version=row.pricing_version,
        price_ppm=row.price_ppm,
        window_s=row.expires_at - row.created_at,
    )
    figures = Counts(*(getattr(row, name) for name in _FIGURES))
    moments = Moments(row.created_at, row.expires_at, *(getattr(row, f"{moment}_at") for moment in MOMENTS))
    return Batch(
        new=new,
        status=row.status,
        ends_as=row.ends_as,
        counts=figures if row.status in ENDED else counted or Counts(),
        moments=moments,
        errors=row.errors,
        output_file_id=row.output_file_id,
        error_file_id=row.error_file_id,
    )


@dataclass(frozen=True, slots=True)
class Job:
    """Work on a batch that `worker` alone may do until its lease is over."""

    batch: Batch
    worker: str


def adopt(connection: Connection, home: Home) -> None:
    """Batches from before there were stores belong where their input was found to be."""
    inputs = select(batch_files.c.id).where(batch_files.c.store == home.store)
    homeless = update(batches).where(alive, _b.store == "", _b.input_file_id.in_(inputs))
    connection.execute(homeless.values(store=home.store, deployment=home.deployment))


def _is_at(home: Home) -> ColumnElement[bool]:
    return and_(_b.store == home.store, _b.deployment == home.deployment)


def _may_be_worked_on(home: Home) -> ColumnElement[bool]:
    """Only its own deployment can judge an input. Files are written by any that reaches the store, and by anybody where
    nobody does: the results are in the ledger, so that what was charged can be downloaded."""
    reached = or_(_b.store == home.store, file_sql.is_lost(_b.store))
    return or_(_is_at(home), and_(_b.status == "finalizing", reached))


def take_job(
    connection: Connection,
    home: Home,
    worker: str,
    lease_s: float,
    statuses: Collection[str],
    after_project: str,
) -> Job | None:
    """A batch in one of these states on which nobody works: the oldest of the first project after `after_project`."""
    free = select(batches).where(
        alive, _b.status.in_(statuses), _b.leased_until <= now_s(), _may_be_worked_on(home)
    )
    turn = case((_b.project_id > after_project, 0), else_=1)
    first = free.order_by(turn, _b.project_id, _b.created_at).limit(1)
    row = connection.execute(first.with_for_update(skip_locked=True)).one_or_none()
    if row is None:
        return None
    leased = update(batches).where(_b.id == row.id)
    connection.execute(leased.values(worker=worker, leased_until=now_s() + lease_s))
    return Job(batches_of(connection, [row])[0], worker)


def keep_job(connection: Connection, job: Job, lease_s: float) -> None:
    """Renews the lease. Raises `LostClaim` where the batch was cancelled or somebody else works on it."""
    mine = update(batches).where(
        _b.id == job.batch.id, _b.worker == job.worker, _b.status == job.batch.status
    )
    if not connection.execute(mine.values(leased_until=now_s() + lease_s)).rowcount:
        raise LostClaim(f"batch {job.batch.id} is no longer {job.batch.status} by {job.worker}")


def end_job(connection: Connection, job: Job, status: BatchStatus, **values: Any) -> None:
    """The batch becomes `status`, now. Raises `LostClaim` as `keep_job`."""
    keep_job(connection, job, 0)
    moment = {f"{status}_at": now_s()} if status in MOMENTS else {}
    done = update(batches).where(_b.id == job.batch.id)
    connection.execute(done.values(status=status, worker=None, **moment, **values))


def running(connection: Connection, home: Home) -> list[tuple[str, str]]:
    """The batches of this home whose lines are run, the oldest first, each with its project."""
    found = select(_b.id, _b.project_id).where(
        alive, _b.status == "in_progress", _b.ends_as == "completed", _is_at(home)
    )
    return [(row.id, row.project_id) for row in connection.execute(found.order_by(_b.created_at))]
