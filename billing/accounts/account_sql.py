"""The SQL of accounts: workspaces, their projects, and the projects' keys."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Table, and_, insert, or_, select, update
from sqlalchemy.engine import Row

from billing.caller import Caller, ProjectLimits
from billing.errors import AccountRevoked, UnknownAccount
from billing.store.schema import api_keys, projects, workspaces
from billing.usage import month_of

AnyRow = Row[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Workspace:
    """An account that pays. None means no limit; `month` is the month that `month_posted` covers.

    `collected` is the part of `posted` that was cut into collections; the rest is uncollected.
    """

    id: str
    name: str
    billing_enabled: bool
    spend_limit_nano_usd: int | None
    monthly_limit_nano_usd: int | None
    posted_nano_usd: int
    held_nano_usd: int
    month: str
    month_posted_nano_usd: int
    created_at: datetime
    revoked_at: datetime | None
    collected_nano_usd: int


@dataclass(frozen=True, slots=True)
class Project:
    """A set of keys with its own rate limits. Usage of a project that is not metered is not recorded."""

    id: str
    workspace_id: str
    name: str
    metered: bool
    limits: ProjectLimits
    created_at: datetime
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """What is kept of a key after it was shown: all but its secret."""

    id: str
    project_id: str
    name: str
    created_at: datetime
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True)
class StoredKey:
    """What authentication needs to know about a key. Inactive: the key, its project or its workspace is revoked."""

    digest: str
    active: bool
    caller: Caller


_STORED_KEY = (
    select(
        api_keys.c.digest,
        api_keys.c.revoked_at.label("key_revoked"),
        projects,
        workspaces.c.revoked_at.label("workspace_revoked"),
    )
    .join(projects, projects.c.id == api_keys.c.project_id)
    .join(workspaces, workspaces.c.id == projects.c.workspace_id)
)


def stored_key(connection: Connection, key_id: str) -> StoredKey | None:
    row = connection.execute(_STORED_KEY.where(api_keys.c.id == key_id)).one_or_none()
    if row is None:
        return None
    revoked = (row.key_revoked, row.revoked_at, row.workspace_revoked)
    caller = Caller(row.workspace_id, row.id, key_id, row.metered, _limits(row))
    return StoredKey(row.digest, all(moment is None for moment in revoked), caller)


def insert_workspace(
    connection: Connection,
    name: str,
    spend_limit_nano_usd: int | None,
    monthly_limit_nano_usd: int | None,
    billing_enabled: bool,
    now: datetime,
) -> Workspace:
    row = {
        "id": f"ws_{secrets.token_hex(10)}",
        "name": name,
        "billing_enabled": billing_enabled,
        "spend_limit_nano_usd": spend_limit_nano_usd,
        "monthly_limit_nano_usd": monthly_limit_nano_usd,
        "posted_nano_usd": 0,
        "held_nano_usd": 0,
        "month": month_of(now),
        "month_posted_nano_usd": 0,
        "created_at": now,
        "revoked_at": None,
    }
    connection.execute(insert(workspaces), row)
    return find_workspace(connection, str(row["id"]))


def insert_project(
    connection: Connection, workspace: str, name: str, metered: bool, limits: ProjectLimits, now: datetime
) -> Project:
    owner = find_workspace(connection, workspace)
    _require_active("workspace", owner, wanted="project")
    row = {
        "id": f"prj_{secrets.token_hex(10)}",
        "workspace_id": owner.id,
        "name": name,
        "metered": metered,
        **limit_columns(limits),
        "created_at": now,
    }
    connection.execute(insert(projects), row)
    return find_project(connection, str(row["id"]))


def insert_key(
    connection: Connection, project: str, key_id: str, name: str, digest: str, now: datetime
) -> KeyRecord:
    owner = find_project(connection, project)
    _require_active("workspace", find_workspace(connection, owner.workspace_id), wanted="key")
    _require_active("project", owner, wanted="key")
    row = {"id": key_id, "project_id": owner.id, "name": name, "digest": digest, "created_at": now}
    connection.execute(insert(api_keys), row)
    return find_key(connection, key_id)


def find_workspace(connection: Connection, ref: str) -> Workspace:
    """By id or by name."""
    _check_storable("workspace", ref)
    statement = select(workspaces).where(or_(workspaces.c.id == ref, workspaces.c.name == ref))
    row = connection.execute(statement).one_or_none()
    if row is None:
        raise UnknownAccount("workspace", ref)
    return Workspace(**row._mapping)


def find_project(connection: Connection, ref: str) -> Project:
    """By id, or as `workspace/project` by names or ids."""
    _check_storable("project", ref)
    matches = projects.c.id == ref
    if "/" in ref:
        workspace, _, name = ref.partition("/")
        matches = and_(
            projects.c.workspace_id == find_workspace(connection, workspace).id,
            or_(projects.c.name == name, projects.c.id == name),
        )
    row = connection.execute(select(projects).where(matches)).one_or_none()
    if row is None:
        raise UnknownAccount("project", ref)
    return _project(row)


def find_key(connection: Connection, key_id: str) -> KeyRecord:
    _check_storable("key", key_id)
    row = connection.execute(select(api_keys).where(api_keys.c.id == key_id)).one_or_none()
    if row is None:
        raise UnknownAccount("key", key_id)
    return _key(row)


def all_workspaces(connection: Connection) -> list[Workspace]:
    statement = select(workspaces).order_by(workspaces.c.created_at, workspaces.c.id)
    return [Workspace(**row._mapping) for row in connection.execute(statement)]


def all_projects(connection: Connection, workspace: str | None) -> list[Project]:
    statement = select(projects).order_by(projects.c.created_at, projects.c.id)
    if workspace is not None:
        statement = statement.where(projects.c.workspace_id == find_workspace(connection, workspace).id)
    return [_project(row) for row in connection.execute(statement)]


def all_keys(connection: Connection, project: str | None) -> list[KeyRecord]:
    statement = select(api_keys).order_by(api_keys.c.created_at, api_keys.c.id)
    if project is not None:
        statement = statement.where(api_keys.c.project_id == find_project(connection, project).id)
    return [_key(row) for row in connection.execute(statement)]


def lock(connection: Connection, table: Table, row_id: str) -> None:
    """Nobody else changes the row until this transaction ends; rows that refer to it can still be inserted."""
    locking = select(table.c.id).where(table.c.id == row_id).with_for_update(key_share=True)
    connection.execute(locking).one_or_none()


def change(connection: Connection, table: Table, row_id: str, values: Mapping[str, object]) -> None:
    connection.execute(update(table).where(table.c.id == row_id).values(**values))


def revoke(connection: Connection, table: Table, row_id: str, now: datetime) -> None:
    """Keeps the time of the first revocation."""
    revoking = update(table).where(table.c.id == row_id, table.c.revoked_at.is_(None))
    connection.execute(revoking.values(revoked_at=now))


def workspace_of(connection: Connection, record: Workspace | Project | KeyRecord) -> str:
    """The id of the workspace that it belongs to, or is."""
    if isinstance(record, Workspace):
        return record.id
    if isinstance(record, Project):
        return record.workspace_id
    return find_project(connection, record.project_id).workspace_id


def limit_columns(limits: ProjectLimits) -> dict[str, object]:
    return {
        "requests_per_minute": limits.requests_per_minute,
        "tokens_per_minute": limits.tokens_per_minute,
        "max_in_flight": limits.max_in_flight,
        "weight": limits.weight,
    }


def _require_active(kind: str, owner: Workspace | Project, *, wanted: str) -> None:
    if owner.revoked_at is not None:
        raise AccountRevoked(kind, owner.name, owner.revoked_at, wanted=wanted)


def _check_storable(kind: str, ref: str) -> None:
    """NUL and lone surrogates name nothing; each database would refuse them in its own way."""
    if not ref.isprintable():
        raise UnknownAccount(kind, ref)


def _limits(row: AnyRow) -> ProjectLimits:
    return ProjectLimits(row.requests_per_minute, row.tokens_per_minute, row.max_in_flight, row.weight)


def _project(row: AnyRow) -> Project:
    return Project(
        row.id, row.workspace_id, row.name, row.metered, _limits(row), row.created_at, row.revoked_at
    )


def _key(row: AnyRow) -> KeyRecord:
    return KeyRecord(row.id, row.project_id, row.name, row.created_at, row.revoked_at)
