"""Brings a database to the latest schema from within Python: no alembic.ini, no shell."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, text

from billing.store.database import open_database

# Any constant would do: it keeps two replicas that start together from migrating at once.
_ADVISORY_LOCK = 0x70697468


async def upgrade(database_url: str, *, revision: str = "head", timeout_s: float = 300.0) -> str:
    """Migrates up to `revision` in one transaction and returns the revision that is now in force.

    Does nothing if the database is there already. Raises `LedgerUnavailable` or `DatabaseConfigError`.
    """
    database = open_database(database_url, timeout_s=timeout_s, pool_size=1)
    try:
        return await database.write(lambda connection: _upgrade(connection, revision))
    finally:
        await database.close()


async def current_revision(database_url: str) -> str | None:
    """The revision of the database, or None where it was never migrated. Raises `LedgerUnavailable`."""
    database = open_database(database_url, pool_size=1)
    try:
        return await database.read(_revision)
    finally:
        await database.close()


def _upgrade(connection: Connection, revision: str) -> str:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
    return _revision(connection) or ""


def _revision(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    return config
