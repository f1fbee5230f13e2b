"""The names in a ledger's file for a shell that completes them, read with the standard library in milliseconds."""

import sqlite3
from pathlib import Path
from typing import Literal

Named = Literal["workspace", "project", "key"]
MOST = 500
WAIT_S = 0.2

_ACTIVE = {
    "workspace": "SELECT name, id FROM workspaces WHERE revoked_at IS NULL",
    "project": "SELECT w.name || '/' || p.name, p.id FROM projects p JOIN workspaces w ON w.id = p.workspace_id "
    "WHERE p.revoked_at IS NULL AND w.revoked_at IS NULL",
    "key": "SELECT k.id, w.name || '/' || p.name || ' ' || k.name FROM api_keys k "
    "JOIN projects p ON p.id = k.project_id JOIN workspaces w ON w.id = p.workspace_id "
    "WHERE k.revoked_at IS NULL AND p.revoked_at IS NULL AND w.revoked_at IS NULL",
}


def names_in(file: Path, named: Named) -> list[tuple[str, str]]:
    """Each active one as a command line names it, and a word about it, in order; the first `MOST`. Nothing where the
    file is no ledger or is busy: a completion is no place for an error."""
    statement = f"{_ACTIVE[named]} ORDER BY 1 LIMIT {MOST}"
    try:
        connection = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=WAIT_S)
        try:
            return [(str(name), str(about)) for name, about in connection.execute(statement)]
        finally:
            connection.close()
    except sqlite3.Error:
        return []
