"""The SQL of the work on batches, which one process at a time does: which batch is next for a server of some home, and
whose it is until its lease is over."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, case, or_, select, update

from billing.batches import store_sql
from billing.batches.batch import Batch, BatchStatus, Home
from billing.batches.batch_sql import MOMENTS, alive, batches_of
from billing.batches.errors import LostClaim
from billing.store.batch_tables import batch_files, batches
from billing.store.database_clock import now_s

_b = batches.c


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
    reached = or_(_b.store == home.store, store_sql.is_lost(_b.store))
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
