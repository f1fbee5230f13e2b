"""Projects and keys as an operator lists them: with the names of what they belong to, and whether they still work."""

from dataclasses import dataclass
from typing import Literal

from sqlalchemy import Connection

from billing.accounts import account_sql
from billing.accounts.account_sql import KeyRecord, Project, Workspace

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


def listed_projects(connection: Connection, workspace: str | None = None) -> list[ListedProject]:
    """Oldest first. Raises `UnknownAccount` for an unknown workspace."""
    owners = {owner.id: owner for owner in account_sql.all_workspaces(connection)}
    return [
        ListedProject(project, owner, _revoked(owner, project))
        for project in account_sql.all_projects(connection, workspace)
        for owner in [owners[project.workspace_id]]
    ]


def listed_keys(
    connection: Connection, workspace: str | None = None, project: str | None = None
) -> list[ListedKey]:
    """Oldest first. Raises `UnknownAccount` for an unknown workspace or project."""
    owners = {listed.project.id: listed for listed in listed_projects(connection, workspace)}
    return [
        ListedKey(key, owner.project, owner.workspace, owner.revoked or ("key" if key.revoked_at else None))
        for key in account_sql.all_keys(connection, project)
        if (owner := owners.get(key.project_id))
    ]


def _revoked(workspace: Workspace, project: Project) -> Revoked | None:
    if workspace.revoked_at:
        return "workspace"
    return "project" if project.revoked_at else None
