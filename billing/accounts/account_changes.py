"""Changes of accounts, each in one transaction with its entry in the audit log."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import Connection, Table

from billing.accounts import account_sql, audit_log
from billing.accounts.account_sql import Project, Workspace
from billing.accounts.audit_log import AuditEntry
from billing.accounts.key_sql import KeyRecord
from billing.errors import AccountExists, InvalidAccount, RowRefused
from billing.store.database import Database, Work

Record = Workspace | Project | KeyRecord
T = TypeVar("T")
A = TypeVar("A", Workspace, Project, KeyRecord)
Find = Callable[[Connection, str], A]

MAX_NAME_CHARS = 64
_KINDS: dict[type, str] = {Workspace: "workspace", Project: "project", KeyRecord: "key"}
# Balances and uses change by themselves and are not settings.
_FIGURES = {
    *("posted_nano_usd", "held_nano_usd", "collected_nano_usd", "credited_nano_usd"),
    *("month", "month_posted_nano_usd", "balance", "last_used_at", "has_expired"),
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
        """What `make` changes of one row, which is locked meanwhile."""

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
        self, connection: Connection, verb: str, record: Record, details: Mapping[str, Any], now: datetime
    ) -> None:
        action = f"{_KINDS[type(record)]}.{verb}"
        workspace_id = workspace_of(connection, record)
        audit_log.record(connection, AuditEntry(now, self.actor, action, workspace_id, record.id, details))


def workspace_of(connection: Connection, record: Record) -> str:
    """The id of the workspace that it belongs to, or is."""
    if isinstance(record, Workspace):
        return record.id
    if isinstance(record, Project):
        return record.workspace_id
    return account_sql.find_project(connection, record.project_id).workspace_id


def settings_of(record: Record) -> dict[str, Any]:
    """What an operator chose of an account, without its balances."""
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
