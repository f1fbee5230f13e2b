"""Migrated databases without the migrations, which take longer than most tests: run once in a process, then copied."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from billing.store.migration import upgrade

TEMPLATE = "pith_migrated"
_file: list[bytes] = []
# The PostgreSQL servers that have the template.
_servers: set[str] = set()


async def migrated_file() -> bytes:
    """The file of an empty ledger on SQLite."""
    if not _file:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "ledger.db"
            await upgrade(f"sqlite:///{path}")
            _file.append(path.read_bytes())
    return _file[0]


async def create_database(server: str, name: str, *, migrated: bool) -> None:
    """On the PostgreSQL with this URL prefix."""
    copied = await _template(server) if migrated else "template1"
    async with _connection(f"{server}/postgres") as connection:
        # The files, as before version 15, and not page by page through the server's log: half of the time.
        strategy = "STRATEGY file_copy" if connection.get_server_version().major >= 15 else ""
        await connection.execute(f"CREATE DATABASE {name} TEMPLATE {copied} {strategy}")


async def _template(server: str) -> str:
    if server not in _servers:
        await create_database(server, TEMPLATE, migrated=False)
        await upgrade(f"{server}/{TEMPLATE}")
        _servers.add(server)
    return TEMPLATE


async def execute_on_postgres(url: str, statement: str) -> None:
    async with _connection(url) as connection:
        await connection.execute(statement)


@asynccontextmanager
async def _connection(url: str) -> AsyncIterator[Any]:
    import asyncpg

    connection = await asyncpg.connect(url.replace("+asyncpg", ""))
    try:
        yield connection
    finally:
        await connection.close()
