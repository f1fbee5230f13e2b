"""Sizes of compressed prompts under control, in the ledger's database: each sample moves its project's, in one place.

Samples come from every server of a ledger. Each is added in a transaction that has locked its project, so that none is
lost or counted twice, and a step is in the audit log or was not made. Servers read the step with a key of the project.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import Connection, delete, insert, select

from billing.accounts import account_sql, audit_log
from billing.accounts.audit_log import AuditEntry
from billing.preservation.size_control import SizeControl, shares_of
from billing.store.database import Database, PatientWork
from billing.store.schema import preservation_sizes, projects

ACTOR = "compression.within"
ACTION = "project.size"
Measure = Literal["nats", "agreement"]
_s = preservation_sizes.c


@dataclass(frozen=True, slots=True)
class Bound:
    """The most that compression may change in the mean over all chats: nats a token, or the share of tokens for which
    another one is the likeliest."""

    measure: Measure
    most: float


@dataclass(frozen=True, slots=True)
class SizedFor:
    """A project, as a chat's size was chosen for it: under another `compression` its samples mean nothing."""

    workspace_id: str
    project_id: str
    compression: str
    bound: Bound


def add(connection: Connection, of: SizedFor, shifts: Sequence[float], now: datetime) -> SizeControl | None:
    """Add samples, each what compression changed in one reply, in the unit of the bound; the account after them. None,
    and nothing is added, where the project has another compression by now."""
    account_sql.lock(connection, projects, of.project_id)
    compression = select(projects.c.compression).where(projects.c.id == of.project_id)
    if connection.execute(compression).scalar() != of.compression:
        return None
    before, stepped_at = _control(connection, of)
    after = before
    for shift in shifts:
        after = after.after(shift, of.bound.most)
    has_stepped = after.step != before.step
    if has_stepped:
        audit_log.record(connection, _entry(of, before, after, now))
    row = {"project_id": of.project_id, "compression": of.compression, **asdict(after)}
    row["stepped_at"] = now if has_stepped else stepped_at
    connection.execute(delete(preservation_sizes).where(_s.project_id == of.project_id))
    connection.execute(insert(preservation_sizes).values(**row))
    return after


def _control(connection: Connection, of: SizedFor) -> tuple[SizeControl, datetime | None]:
    """The account so far, and when it made a step; a new one for another compression than before."""
    found = select(preservation_sizes).where(_s.project_id == of.project_id, _s.compression == of.compression)
    row = connection.execute(found).one_or_none()
    if row is None:
        return SizeControl(), None
    return SizeControl(row.step, row.position, row.samples, row.total, row.squares), row.stepped_at


def _entry(of: SizedFor, before: SizeControl, after: SizeControl, now: datetime) -> AuditEntry:
    """The step with the samples behind it, of all since the project's compression was set."""
    details: dict[str, Any] = {
        "conversations_by_keep": [shares_of(before.step), shares_of(after.step)],
        "samples": [before.samples, after.samples],
        "mean": [before.mean, after.mean],
        "measure": of.bound.measure,
        "within": of.bound.most,
    }
    return AuditEntry(now, ACTOR, ACTION, of.workspace_id, of.project_id, details)


class SizeStore:
    """Raises `LedgerUnavailable`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add_whole(self, of: SizedFor, count: int, now: datetime) -> SizeControl | None:
        """Add chats that were sent whole as their size, of which nothing was changed."""
        work = PatientWork(lambda connection: add(connection, of, [0.0] * count, now))
        return await self._database.write(work, durable=False)
