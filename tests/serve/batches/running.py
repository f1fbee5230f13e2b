"""A server on loopback in a thread of its own, with its background work and a fake engine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from billing.accounts.accounts import Accounts
from billing.ledger.ledger import Ledger
from billing.ledger.spool import Spool
from billing.store.database import open_database
from models.fake_engine import FakeEngine
from serve.app import start_service
from serve.catalog.offered import catalog_of
from serve.config.settings import Settings
from serve.money.ledger_setup import prices_of, read_pepper
from tests.faults.postgres import free_port
from tests.migrated import migrated_file
from tests.serve.served import settings_document


@contextmanager
def running_server(folder: Path, engine: FakeEngine, **fields: Any) -> Iterator[tuple[str, Path]]:
    """Its address, and the file with a project's key."""
    port = free_port()
    ready, stop = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(_serve(folder, engine, port, ready, stop, fields)))
    thread.start()
    assert ready.wait(30)
    yield f"http://127.0.0.1:{port}", folder / "key"
    stop.set()
    thread.join(30)


async def _serve(
    folder: Path,
    engine: FakeEngine,
    port: int,
    ready: threading.Event,
    stop: threading.Event,
    fields: dict[str, Any],
) -> None:
    (folder / "pith.db").write_bytes(await migrated_file())
    settings = Settings.model_validate(settings_document(folder, server={"port": port}, **fields))
    database = open_database(settings.billing.database_url)
    now = datetime.now(UTC)
    spool = Spool(folder / "other.db")
    await Ledger(database, spool).publish_prices(prices_of(catalog_of(settings), []), now=now)
    accounts = Accounts(database, pepper=read_pepper(settings.state_dir))
    await accounts.create_workspace("acme", now=now)
    await accounts.create_project("acme", "nightly", now=now)
    (folder / "key").write_text((await accounts.keys.create("acme/nightly", "key", now=now))[1])
    engines = {model.id: engine for model in settings.models}
    service = start_service(settings, engines=engines, compressors={}, retrievers={}, database=database)
    while not service.server.started:
        await asyncio.wait([service.task], timeout=0.01)
    ready.set()
    await asyncio.to_thread(stop.wait)
    await service.stop()
    await spool.close()
