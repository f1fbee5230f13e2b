"""Brings a database to the latest schema from within Python: no alembic.ini, no shell."""

from functools import partial
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, text

from billing.errors import DatabaseConfigError
from billing.store.database import LongWork, open_database

# Any constant would do: it keeps two replicas that start together from migrating at once.
_ADVISORY_LOCK = 0x70697468
MIGRATIONS = Path(__file__).parent / "migrations"


async def upgrade(database_url: str, *, revision: str = "head", timeout_s: float = 300.0) -> str:
    """Migrates up to `revision` in one transaction and returns the revision that is now in force.

    It takes as long as the ledger is large. `timeout_s`: for a connection, and for locks that others hold.
    Does nothing if the database is there already. Raises `LedgerUnavailable` or `DatabaseConfigError`.
    """
    database = open_database(database_url, timeout_s=timeout_s, pool_size=1)
    try:
        return await database.write(LongWork(partial(_upgrade, revision=revision)))
    finally:
        await database.close()


async def current_revision(database_url: str) -> str | None:
    """The revision of the database, or None where it was never migrated. Raises `LedgerUnavailable`."""
    database = open_database(database_url, pool_size=1)
    try:
        return await database.read(_revision)
    finally:
        await database.close()


def newest_revision() -> str:
    """To which this version migrates."""
    return ScriptDirectory.from_config(_config()).get_current_head() or ""


def _upgrade(connection: Connection, revision: str) -> str:
    if connection.dialect.name == "postgresql":
        # Another server migrates as long as it takes. Any other lock is waited for until its time is over.
        connection.execute(text("SET LOCAL statement_timeout = 0"))
        connection.execute(text("SET LOCAL lock_timeout = 0"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
        connection.execute(text("SET LOCAL lock_timeout TO DEFAULT"))
    config = _config()
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, revision)
    except CommandError as error:
        raise _newer(connection, config) or error from error
    return _revision(connection) or ""


def _newer(connection: Connection, config: Config) -> DatabaseConfigError | None:
    """The refusal of a ledger at a revision that this version does not have. Nothing migrates down."""
    script, found = ScriptDirectory.from_config(config), _revision(connection)
    known = [each.revision for each in script.walk_revisions()]
    if found is None or found in known:
        return None
    if found < known[-1]:
        return DatabaseConfigError(
            f"the ledger is at revision {found}, and this version of pith knows none before {known[-1]}: bring it "
            "there with a version that does (docs/operations/upgrade.md)"
        )
    return DatabaseConfigError(
        f"the ledger is at revision {found}, and this version of pith knows none after {known[0]}: run the version "
        "that migrated it, or restore a backup that was made before"
    )


def _revision(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    return config
