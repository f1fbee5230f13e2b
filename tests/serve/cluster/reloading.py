"""A server that reloads, without Ray: HTTP processes are threads that share the coordinator's real socket, on a real
ledger, with fake engines."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import yaml

from billing.store.database import open_database
from billing.store.migration import newest_revision
from billing.usage import now
from models.fake_engine import FakeEngine
from serve.app import Service, start_service
from serve.catalog.offered import catalog_of
from serve.cluster.drain import Left, Retiring
from serve.cluster.lineup import Lineup, first_lineup
from serve.cluster.progress import Says, StartError
from serve.cluster.reload_plan import Asked
from serve.cluster.reloader import Reloader
from serve.config.added_adapters import with_added
from serve.config.settings import Settings, load_settings
from serve.money.ledger_setup import prepare_ledger
from serve.processes.control import control_socket
from serve.processes.coordinator import open_coordinator
from serve.processes.run_folder import run_folder
from tests.migrated import migrated_file
from tests.serve.served import settings_document

WAIT_S = 120


class Quiet:
    """Nobody is told; what is said is kept."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def begin(self, step: str) -> None:
        self.said.append(step)

    say = begin


class FakeProcess:
    """An HTTP process that is a thread with a loop of its own."""

    def __init__(self, settings: Settings, folder: Path, engine: FakeEngine | None = None) -> None:
        self._engine = engine or FakeEngine()
        self._started: Future[Service] = Future()
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(
            target=self._loop.run_until_complete, args=[self._run(settings, folder)]
        )
        self._thread.start()
        self._service = self._started.result(WAIT_S)

    async def _run(self, settings: Settings, folder: Path) -> None:
        try:
            service = start_service(
                settings,
                engines={model.id: self._engine for model in settings.models},
                compressors={},
                retrievers={},
                database=open_database(settings.billing.database_url),
                run_folder=folder,
            )
        except BaseException as error:
            self._started.set_exception(error)
            raise
        self._started.set_result(service)
        await self._ended.wait()
        await service.stop()

    def retire(self) -> Left:
        if not self._thread.is_alive():
            return 0, 0

        async def ask() -> Left:
            return self._service.retire()

        return asyncio.run_coroutine_threadsafe(ask(), self._loop).result(WAIT_S)

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        self._loop.close()


@dataclass
class FakeRun:
    """Ray Serve's part, by the names of applications. What is in `broken` does not start."""

    folder: Path
    progress: Says
    running: dict[str, list[FakeProcess]] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    # Of these Ray goes on starting replicas.
    tried_on: set[str] = field(default_factory=set)
    # What is said of the nodes; "": nothing is wrong with them.
    nodes: str = ""
    available: dict[str, float] = field(default_factory=lambda: {"CPU": 16.0})
    # What neither starts nor fails.
    stuck: set[str] = field(default_factory=set)
    tick: threading.Event = field(default_factory=threading.Event)

    def telling(self, progress: Says) -> FakeRun:
        return replace(self, progress=progress)

    def check_nodes(self, settings: Settings) -> None:
        if self.nodes:
            raise StartError(self.nodes)

    def free(self) -> Mapping[str, float]:
        return self.available

    def deploy_models(self, lineup: Lineup, apps: Collection[str], checkpoints: Mapping[str, str]) -> None:
        for app in apps:
            self.running[lineup.places[app]] = []

    def deploy_ingress(self, lineup: Lineup) -> None:
        count = 0 if lineup.ingress in self.broken else lineup.settings.server.ingress_replicas
        self.running[lineup.ingress] = [FakeProcess(lineup.settings, self.folder) for _ in range(count)]

    def wait(
        self, names: Collection[str], go_on: Callable[[str], None], *, may_fail: Collection[str] = ()
    ) -> Mapping[str, str]:
        for name in names:
            assert name in self.running
            while name in self.stuck:
                go_on(name)
                self.tick.wait(0.01)
            if name in self.broken and name not in may_fail:
                raise StartError(f"{name} cannot start: it is broken")
        return {name: "it is broken" for name in names if name in self.broken}

    def away(self, lineup: Lineup) -> Mapping[str, bool]:
        return {app: name not in self.tried_on for app, name in lineup.places.items() if name in self.broken}

    def remove(self, names: Collection[str]) -> None:
        for name in names:
            for process in self.running.pop(name, []):
                process.end()

    def retiring(self, lineup: Lineup) -> Retiring:
        processes = self.running[lineup.ingress]
        return Retiring(lambda: [process.retire() for process in processes], within_s=WAIT_S)


@dataclass
class Reloading:
    """The server, and the file that it reads."""

    file: Path
    document: dict[str, Any]
    settings: Settings
    run: FakeRun
    reloader: Reloader
    folder: Path
    url: str
    key: str

    def change(self, edit: Callable[[dict[str, Any]], None]) -> None:
        """In the file."""
        edit(self.document)
        self.file.write_text(yaml.safe_dump(self.document))

    def reload(self, **asked: Any) -> dict[str, Any]:
        return self.reloader.outcome(Asked("test", **asked), lambda line: None)

    def client(self) -> httpx.Client:
        return httpx.Client(
            base_url=self.url, headers={"Authorization": f"Bearer {self.key}"}, timeout=WAIT_S
        )


@contextmanager
def reloading(folder: Path, port: int, *, known: Callable[[], str] = newest_revision) -> Iterator[Reloading]:
    """A server with the models `alpha` to `delta` and two HTTP processes, which answers until the block ends. The code
    on the disk is what runs, unless `known` says otherwise: to import it takes longer than a reload."""
    document = settings_document(folder, ops={"port": 0})
    document["server"] = {"port": port, "idle_timeout_s": 5}
    for model in document["models"]:
        model["engine"] = {"kind": "fake"}
        model["checkpoint"] = "nobody/loads-it"
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(document))

    def read(path: Path | None) -> Settings:
        return with_added(load_settings(path or file))

    settings = read(None)
    (folder / "pith.db").write_bytes(asyncio.run(migrated_file()))
    key = asyncio.run(prepare_ledger(settings, catalog_of(settings), now=now()))
    assert key is not None
    with run_folder(settings.state_dir, port) as own, open_coordinator("127.0.0.1", port, own):
        run = FakeRun(own, Quiet())
        lineup = first_lineup(settings)
        run.deploy_models(lineup, lineup.places, {})
        run.deploy_ingress(lineup)
        reloader = Reloader(run, lineup, read, known)  # type: ignore[arg-type]
        try:
            with control_socket(own, reloader.answer):
                yield Reloading(file, document, settings, run, reloader, own, f"http://127.0.0.1:{port}", key)
        finally:
            run.remove(list(run.running))
