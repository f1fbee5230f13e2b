"""Projects and keys as an operator lists them: with the names of what they belong to, and whether they still work."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import Connection

from billing.accounts import account_sql, key_sql
from billing.accounts.account_sql import Page, Project, Workspace
from billing.accounts.key_sql import KeyRecord

# Which of the three was revoked. The outermost is named, since revoking it ended all that is in it.
Revoked = Literal["workspace", "project", "key"]


@dataclass(frozen=True, slots=True)
class ListedProject:
    """A project with its workspace, and what was revoked where none of its keys works."""

    project: Project
    workspace: Workspace
    revoked: Revoked | None


@dataclass(frozen=True, slots=True)
class ListedKey:
    """A key with what it belongs to, and what was revoked where it does not work."""

    key: KeyRecord
    project: Project
    workspace: Workspace
    revoked: Revoked | None


def listed_projects(
    connection: Connection, workspace: str | None = None, page: Page | None = None
) -> list[ListedProject]:
    """Oldest first. Raises `UnknownAccount` for an unknown workspace."""
    found = account_sql.all_projects(connection, workspace, page)
    return _with_owners(connection, found, some=page is not None)


def listed_keys(
    connection: Connection, workspace: str | None = None, project: str | None = None, page: Page | None = None
) -> list[ListedKey]:
    """Oldest first. Raises `UnknownAccount` for an unknown workspace or project."""
    found = key_sql.all_keys(connection, project, workspace, page)
    some = page is not None
    ids = {key.project_id for key in found} if some else None
    theirs = _with_owners(connection, account_sql.all_projects(connection, None, ids=ids), some=some)
    owners = {listed.project.id: listed for listed in theirs}
    return [
        ListedKey(key, owner.project, owner.workspace, owner.revoked or ("key" if key.revoked_at else None))
        for key in found
        for owner in [owners[key.project_id]]
    ]


def _with_owners(connection: Connection, found: Sequence[Project], *, some: bool) -> list[ListedProject]:
    """With `some` only their workspaces are read."""
    ids = {project.workspace_id for project in found} if some else None
    owners = {owner.id: owner for owner in account_sql.all_workspaces(connection, ids=ids)}
    return [
        ListedProject(project, owner, _revoked(owner, project))
        for project in found
        for owner in [owners[project.workspace_id]]
    ]


def _revoked(workspace: Workspace, project: Project) -> Revoked | None:
    if workspace.revoked_at:
        return "workspace"
    return "project" if project.revoked_at else None
