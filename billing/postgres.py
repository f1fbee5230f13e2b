"""PostgreSQL as a ledger, through asyncpg: pools, timeouts, and one retry when a connection was dead."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from billing.database import Database, Work, translated_errors

T = TypeVar("T")


class PostgresDatabase(Database):
    """Two pools: the second commits without waiting for the disk, which is enough for a hold, since the
    request that it belongs to dies with the machine too."""

    def __init__(self, url: URL, *, timeout_s: float, pool_size: int) -> None:
        self._timeout_s = timeout_s
        self._durable = _engine(url, timeout_s, pool_size, synchronous_commit="on")
        self._relaxed = _engine(url, timeout_s, pool_size, synchronous_commit="off")

    async def write(self, work: Work[T], *, durable: bool = True) -> T:
        return await self._run(self._durable if durable else self._relaxed, work)

    async def read(self, work: Work[T]) -> T:
        return await self._run(self._relaxed, work)

    async def close(self) -> None:
        await self._durable.dispose()
        await self._relaxed.dispose()

    async def _run(self, engine: AsyncEngine, work: Work[T]) -> T:
        with translated_errors():
            async with asyncio.timeout(self._timeout_s):
                try:
                    return await self._transact(engine, work)
                except DBAPIError as error:
                    # After a restart of PostgreSQL every pooled connection is dead once. A commit that broke
                    # off is not tried again, since it may have happened: that is a ConnectionError.
                    if not error.connection_invalidated:
                        raise
                    return await self._transact(engine, work)

    @staticmethod
    async def _transact(engine: AsyncEngine, work: Work[T]) -> T:
        async with engine.connect() as connection:
            result = await connection.run_sync(work)
            try:
                await connection.commit()
            except DBAPIError as error:
                if error.connection_invalidated:
                    raise ConnectionError("the connection broke off during the commit") from error
                raise
            return result


def _engine(url: URL, timeout_s: float, pool_size: int, *, synchronous_commit: str) -> AsyncEngine:
    milliseconds = str(int(timeout_s * 1000))
    settings = {
        "application_name": "pith",
        "synchronous_commit": synchronous_commit,
        "statement_timeout": milliseconds,
        "lock_timeout": milliseconds,
        # A replica that hangs within a transaction must not hold a workspace's row for ever.
        "idle_in_transaction_session_timeout": milliseconds,
        "jit": "off",
    }
    return create_async_engine(
        url,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=timeout_s,
        connect_args={"timeout": timeout_s, "server_settings": settings},
    )
