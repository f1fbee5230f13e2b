"""A server that kills itself at one of its writes to the ledger, and ends by itself once no batch has work left."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection

from billing.batches.batch_store import BatchStore
from billing.ledger.leases import LeaseTimes
from billing.store.database import Database, PatientWork, RowWork, Work, open_database
from models.fake_engine import FakeEngine
from serve.app import start_service
from serve.config.settings import Settings

T = TypeVar("T")

# Soon enough that what a dead server worked on is taken over while the test waits.
HASTY = LeaseTimes(ttl_s=2.0, renew_every_s=0.2, batch_s=0.6)
DONE = 0


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class FakeDyingDatabase(Database):
    """`inner`, until the process is killed at a write: `before` it, `within` its transaction or `after` its commit."""

    def __init__(self, inner: Database, *, at: int, when: str) -> None:
        self._inner = inner
        self._left = at
        self._when = when

    async def write(self, work: Work[T], *, durable: bool = True) -> T:
        self._left -= 1
        if self._left:
            return await self._inner.write(work, durable=durable)
        if self._when == "before":
            die()
        result = await self._inner.write(
            self._dying(work) if self._when == "within" else work, durable=durable
        )
        die()
        return result

    def _dying(self, work: Work[T]) -> Work[T]:
        def dying(connection: Connection) -> T:
            work(connection)
            die()
            raise AssertionError("unreachable")

        if isinstance(work, RowWork):
            return RowWork(work.row, dying)
        return PatientWork(dying) if isinstance(work, PatientWork) else dying

    async def read(self, work: Work[T]) -> T:
        return await self._inner.read(work)

    async def close(self) -> None:
        await self._inner.close()


async def until_done(store: BatchStore) -> None:
    loop = asyncio.get_running_loop()
    while await store.any_unfinished():
        looked = asyncio.Event()
        loop.call_later(0.02, looked.set)
        await looked.wait()


async def serve(settings: Settings, at: int, when: str) -> None:
    inner = open_database(settings.billing.database_url)
    engine: Any = FakeEngine()
    service = start_service(
        settings,
        engines={model.id: engine for model in settings.models},
        compressors={},
        retrievers={},
        database=FakeDyingDatabase(inner, at=at, when=when),
        lease=HASTY,
    )
    done = asyncio.create_task(until_done(service.batches.jobs._store))
    while not done.done():
        service.check()
        await asyncio.wait([done], timeout=1)
    # A part of what it does at the end is written too: it may die of that as well.
    await service.stop()


def run(settings: Path, log: Path, at: int, when: str) -> None:
    """In a process of its own. What it says goes to the log."""
    said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(said, stream.fileno())
    asyncio.run(serve(Settings.model_validate_json(settings.read_text()), at, when))
