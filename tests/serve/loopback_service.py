"""The real HTTP service on a loopback port in a thread, on fake engines and a ledger with fake outages."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from billing.ledger.ledger import Ledger
from billing.ledger.spool import Spool
from billing.store.database import FakeOutageDatabase, Work, open_database
from billing.usage import now
from models.embedding_backends import RetrievalModel
from models.engine import Engine, EngineChunk, EngineRequest
from models.fake_engine import FakeEngine
from serve.app import PithServer, build_api, http_config
from serve.catalog.offered import catalog_of
from serve.compressors.compressor import RunningModel
from serve.config.chat_models import CapabilitySettings
from serve.config.compression_models import DemoCompressionSettings
from serve.config.settings import Settings, load_settings
from serve.money.ledger_setup import prepare_ledger
from serve.processes.listener import Listener, own_listener

CONFIG = Path(__file__).resolve().parents[2] / "configs/tiny.yaml"
START_S = 120
SECRET = "the password is hunter2"


class FakeBrokenEngine:
    """A fake engine with a bug: it raises what no engine may, after the first event of a stream."""

    async def ready(self) -> bool:
        return True

    def prompt_bound(self) -> None:
        return None

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineChunk, None]:
        if request.stream:
            async with aclosing(FakeEngine().generate(request)) as chunks:
                yield await anext(chunks)
                yield await anext(chunks)
        raise RuntimeError(SECRET)


class FakeFaultyDatabase(FakeOutageDatabase):
    """A fake outage, and a bug: while `is_broken`, a read raises what no database may."""

    is_broken = False

    async def read(self, work: Work[Any]) -> Any:
        if self.is_broken:
            raise RuntimeError(SECRET)
        return await super().read(work)


@dataclass
class Running:
    """A service that listens. Its engine's and its database's knobs may be turned between requests."""

    settings: Settings
    url: str
    key: str
    database: FakeFaultyDatabase

    def client(self) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.key}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=120)


@contextmanager
def service(
    state_dir: Path,
    engine: Engine,
    *,
    compressor: RunningModel | None = None,
    retriever: RetrievalModel | None = None,
    demo: DemoCompressionSettings | None = None,
    tools: bool = False,
    cors_origins: Sequence[str] = (),
) -> Iterator[Running]:
    """Listen until the block ends. All four models are answered by `engine`, and, if they are to be served, those that
    compress by `compressor`, and those of embeddings and ranks by `retriever`. `tools`: the chat models can call some.
    """
    settings = load_settings(CONFIG).anchored(state_dir)
    if cors_origins:
        server = settings.server.model_copy(update={"cors_origins": list(cors_origins)})
        settings = settings.model_copy(update={"server": server})
    if demo is not None:
        compression = settings.compression.model_copy(update={"demo": demo})
        settings = settings.model_copy(update={"compression": compression})
    if tools:
        can = CapabilitySettings(tools=True)
        models = [model.model_copy(update={"capabilities": can}) for model in settings.models]
        settings = settings.model_copy(update={"models": models})
    key = asyncio.run(prepare_ledger(settings, catalog_of(settings), now=now()))
    assert key is not None
    database = FakeFaultyDatabase(open_database(settings.billing.database_url))
    engines = {model.id: engine for model in settings.models}
    listener = own_listener("127.0.0.1", 0)
    up, stop = threading.Event(), threading.Event()

    async def serve() -> None:
        async with _listening(settings, engines, database, listener, compressor, retriever):
            up.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert up.wait(START_S), "the service did not start"
        yield Running(settings, f"http://127.0.0.1:{listener.sock.getsockname()[1]}", key, database)
    finally:
        stop.set()
        thread.join(START_S)
        assert not thread.is_alive(), "the service did not stop"


class _listening:
    """An async context in which the service accepts requests."""

    def __init__(
        self,
        settings: Settings,
        engines: Mapping[str, Engine],
        database: FakeFaultyDatabase,
        listener: Listener,
        compressor: RunningModel | None,
        retriever: RetrievalModel | None,
    ) -> None:
        self._ledger = Ledger(database, Spool(settings.billing.spool_path))
        self._database = database
        compressors = {model.id: compressor for model in settings.compression.models if compressor}
        api = build_api(
            settings,
            engines=dict(engines),
            compressors=compressors,
            retrievers={model.id: retriever for model in settings.retrieval_models if retriever},
            database=database,
            ledger=self._ledger,
        )
        self._server = PithServer(http_config(api, settings), listener)

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(self._server.serve())

    async def __aexit__(self, *_: object) -> None:
        self._server.should_exit = True
        await self._task
        await self._ledger.close()
        await self._database.close()
