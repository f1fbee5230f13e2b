"""Audit log of accounts and collections, changes of accounts that it notes, and administrators' idempotent requests."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Table, delete, insert, select

from billing.accounts import account_sql
from billing.accounts.account_sql import Project, Workspace
from billing.accounts.key_sql import KeyRecord
from billing.errors import AccountExists, InvalidAccount, RowRefused
from billing.store.database import Database, Work
from billing.store.dates import now_s, within
from billing.store.schema import administrators_requests, audit_log

MAX_ACTOR_CHARS = 128


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """`subject` is the id of what changed. `details` of a change has each field as `[before, after]`."""

    at: datetime
    actor: str
    action: str
    workspace_id: str | None
    subject: str
    details: Mapping[str, Any]


def record(connection: Connection, entry: AuditEntry) -> None:
    """Call it in the transaction of the change itself: then neither exists without the other."""
    row = {
        "at": entry.at,
        "actor": entry.actor[:MAX_ACTOR_CHARS],
        "action": entry.action,
        "workspace_id": entry.workspace_id,
        "subject": entry.subject,
        "details": json.dumps(entry.details, default=_plain, separators=(",", ":")),
    }
    connection.execute(insert(audit_log), row)


def entries(
    connection: Connection,
    *,
    workspace_id: str | None = None,
    subject: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int = 1000,
) -> list[AuditEntry]:
    """The last `limit` entries from `since` to before `until`, oldest first; None is any."""
    columns = audit_log.c
    statement = select(audit_log).order_by(columns.id.desc()).limit(limit)
    if workspace_id is not None:
        statement = statement.where(columns.workspace_id == workspace_id)
    if subject is not None:
        statement = statement.where(columns.subject == subject)
    rows = connection.execute(within(statement, columns.at, since, until)).all()
    return [
        AuditEntry(row.at, row.actor, row.action, row.workspace_id, row.subject, json.loads(row.details))
        for row in reversed(rows)
    ]


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    raise TypeError(f"an audit entry cannot hold a {type(value).__name__}")


KEPT_S = 86_400.0
_r = administrators_requests.c


@dataclass(frozen=True, slots=True)
class BegunRequest:
    """What somebody began: `digest` is the request's SHA-256, in hexadecimal."""

    actor: str
    idempotency_key: str
    digest: str


def begin(connection: Connection, request: BegunRequest) -> str | None:
    """Notes it, for a day; the digest of what was begun under its key before, and then nothing is noted. Of two at
    once, one raises `RowRefused`."""
    connection.execute(delete(administrators_requests).where(_r.began_at <= now_s() - KEPT_S))
    found: str | None = connection.execute(select(_r.digest).where(*_same(request))).scalar()
    if found is None:
        noted = {"actor": request.actor[:MAX_ACTOR_CHARS], "idempotency_key": request.idempotency_key}
        connection.execute(
            insert(administrators_requests).values(**noted, digest=request.digest, began_at=now_s())
        )
    return found


def forget(connection: Connection, request: BegunRequest) -> None:
    """It was refused: nothing was made, and it may be sent again."""
    connection.execute(delete(administrators_requests).where(*_same(request)))


def _same(request: BegunRequest) -> tuple[ColumnElement[bool], ...]:
    return _r.actor == request.actor[:MAX_ACTOR_CHARS], _r.idempotency_key == request.idempotency_key


Record = Workspace | Project | KeyRecord
T = TypeVar("T")
A = TypeVar("A", Workspace, Project, KeyRecord)
Find = Callable[[Connection, str], A]

MAX_NAME_CHARS = 64
_KINDS: dict[type, str] = {Workspace: "workspace", Project: "project", KeyRecord: "key"}
# Balances and uses change by themselves and are not settings.
_FIGURES = {
    *("posted_nano_usd", "held_nano_usd", "collected_nano_usd", "credited_nano_usd"),
    *("month", "month_posted_nano_usd", "balance", "last_used_at", "has_expired", "size_step"),
}


@dataclass(frozen=True, slots=True)
class AccountChanges:
    """Makes and changes rows as `actor`; `forget` is called after every change, whether it succeeded or not."""

    database: Database
    actor: str
    forget: Callable[[], None]

    async def create(self, kind: str, name: str, now: datetime, make: Work[A]) -> A:
        """Raises `AccountExists` where a constraint refuses the row."""

        def work(connection: Connection) -> A:
            made = make(connection)
            self.note(connection, "create", made, settings_of(made), now)
            return made

        try:
            return await self.database.write(work)
        except RowRefused as error:
            raise AccountExists(kind, name) from error

    async def alter(
        self,
        verb: str,
        table: Table,
        find: Find[A],
        ref: str,
        make: Callable[[Connection, str], None],
        now: datetime,
    ) -> A:
        """Changes one row with `make`; it is locked meanwhile."""

        def work(connection: Connection) -> A:
            row_id = find(connection, ref).id
            account_sql.lock(connection, table, row_id)
            before = find(connection, row_id)
            make(connection, row_id)
            return self.noted(connection, verb, before, find(connection, row_id), now)

        return await self.write(work)

    async def write(self, work: Work[T]) -> T:
        # Forgotten even if it is unknown whether the write succeeded: the next request reads the current state.
        try:
            return await self.database.write(work)
        finally:
            self.forget()

    def noted(self, connection: Connection, verb: str, before: A, after: A, now: datetime) -> A:
        """The record after its change, which is noted unless nothing is different."""
        old, new = settings_of(before), settings_of(after)
        changed = {name: [old[name], value] for name, value in new.items() if old[name] != value}
        if changed:
            self.note(connection, verb, after, changed, now)
        return after

    def note(
        self, connection: Connection, verb: str, changed: Record, details: Mapping[str, Any], now: datetime
    ) -> None:
        action = f"{_KINDS[type(changed)]}.{verb}"
        workspace_id = workspace_of(connection, changed)
        record(connection, AuditEntry(now, self.actor, action, workspace_id, changed.id, details))


def workspace_of(connection: Connection, record: Record) -> str:
    """The id of the workspace that it belongs to, or is."""
    if isinstance(record, Workspace):
        return record.id
    if isinstance(record, Project):
        return record.workspace_id
    return account_sql.find_project(connection, record.project_id).workspace_id


def settings_of(record: Record) -> dict[str, Any]:
    """The settings of an account, without its balances."""
    fields = asdict(record)
    fields |= fields.pop("terms", {})
    powers = fields.pop("powers", {})
    fields |= {f"allowed_{name}": None if some is None else sorted(some) for name, some in powers.items()}
    limits = fields.pop("limits", {})
    return {name: value for name, value in (fields | limits).items() if name not in _FIGURES}


def checked_name(name: str) -> str:
    """A name must be printable, and must not look like an id or like `workspace/project`. Raises `InvalidAccount`."""
    if not 1 <= len(name) <= MAX_NAME_CHARS or not name.isprintable() or name != name.strip():
        raise InvalidAccount(f"name: must be 1 to {MAX_NAME_CHARS} printable characters, not {name!r}")
    if "/" in name or name.startswith(("ws_", "prj_")):
        raise InvalidAccount(f"name: must not contain '/' nor begin with 'ws_' or 'prj_', but is {name!r}")
    return name
