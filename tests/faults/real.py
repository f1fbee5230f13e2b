"""The same audit against a real `pith serve`, on vLLM and Ray: a few runs, since each takes long."""

from __future__ import annotations

import asyncio
import random
import signal
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import yaml

from serve.cluster.replicas.applications import INGRESS_APP, compressor_app
from serve.config.settings import load_settings
from tests.faults.audit import Books, Tally, check, settled, statuses
from tests.faults.load import Load
from tests.faults.prices import PinnedPrice
from tests.faults.run import MODES, Mode
from tests.integration.running import Server, start_server, stop_server, write_config

# Dead holds are closed after the sum of these.
TIMES = {"start_wait_s": 5, "longest_request_s": 10, "stall_s": 5, "drain_s": 1}
SETTLED_S, RECOVERY_S = 60.0, 240.0
# So cheap that it pays.
COMPRESSION_USD = "0.001001"


@dataclass(frozen=True)
class RealFault:
    """`strike` returns the server that is to go on: the same one, or its successor."""

    name: str
    strike: Callable[[Server, random.Random], Server]
    everyone_lives: bool = True
    leavers: float = 0.0
    # Whether something that a chat needs is broken.
    chats_may_fail: bool = True


def _kill_engine(server: Server, rng: random.Random) -> Server:
    rng.choice(server.engine_processes()).kill()
    return server


def _kill_ingress(server: Server, rng: random.Random) -> Server:
    family = psutil.Process(server.pid).children(recursive=True)
    next(child for child in family if _is_ingress(child)).kill()
    return server


def _is_ingress(process: psutil.Process) -> bool:
    return _is_replica_of(INGRESS_APP, process)


def _is_replica_of(app: str, process: psutil.Process) -> bool:
    try:
        return f"ServeReplica:{app}:" in " ".join(process.cmdline())
    except psutil.Error:
        return False


def _compressor(server: Server) -> psutil.Process:
    app = compressor_app(_compression_model(server))
    family = psutil.Process(server.pid).children(recursive=True)
    return next(child for child in family if _is_replica_of(app, child))


def _compression_model(server: Server) -> str:
    return load_settings(server.config).compression.models[0].id


def _kill_compressor(server: Server, rng: random.Random) -> Server:
    _compressor(server).kill()
    return server


def _break_workers(server: Server, rng: random.Random) -> Server:
    """Each is killed or stopped, the process that forks them too."""
    for worker in _compressor(server).children(recursive=True):
        with suppress(psutil.Error):
            worker.send_signal(rng.choice((signal.SIGKILL, signal.SIGSTOP)))
    return server


def _stop_and_start(server: Server, rng: random.Random) -> Server:
    assert server.process is not None
    server.process.send_signal(signal.SIGTERM)
    stop_server(server)
    successor = start_server(server.config, server.state_dir)
    # The clients go on where they were.
    return successor


FAULTS = (
    RealFault("client gone", lambda server, rng: server, leavers=0.5),
    RealFault("engine killed", _kill_engine),
    RealFault("compressor killed", _kill_compressor, chats_may_fail=False),
    RealFault("compressor's workers killed or stopped", _break_workers, chats_may_fail=False),
    RealFault("kill -9 the ingress", _kill_ingress, everyone_lives=False),
    RealFault("SIGTERM in load", _stop_and_start),
)


async def run_real(fault: RealFault, mode: Mode, seed: int, server: Server) -> tuple[Tally, str, Server]:
    """One run against `server`, on its demo key. Returns the server that the next run is to use."""
    rng = random.Random(f"{fault.name} {mode} {seed}")
    prefix = f"{fault.name.replace(' ', '-')}-{mode}-{seed}-"
    load = _load(server, rng, mode, prefix, fault.leavers)
    load.start()
    answers = load.answers
    try:
        await load.completed_more(3, deadline_s=RECOVERY_S)
        await asyncio.sleep(rng.uniform(0, 1))
        server = await asyncio.to_thread(fault.strike, server, rng)
        if server.port != load.port:
            await load.stop()
            load = _load(server, rng, mode, f"{prefix}after-", fault.leavers)
            load.answers = answers
            load.start()
        await load.completed_more(5, deadline_s=RECOVERY_S)
    finally:
        await load.stop()
    books = _books(server)
    await settled(books, within_s=SETTLED_S)
    ours = {answer.ask.request_id for answer in answers}
    tally = await check(
        books, answers, everyone_lives=fault.everyone_lives, chats_may_fail=fault.chats_may_fail
    )
    foreign = "an event of no request: "
    # The workspace is the demo's: earlier runs have their events there too.
    tally.violations = [
        text
        for text in tally.violations
        if not text.startswith(foreign) or text.removeprefix(foreign) in ours
    ]
    return tally, statuses(answers), server


def _load(server: Server, rng: random.Random, mode: Mode, prefix: str, leavers: float) -> Load:
    model = load_settings(server.config).models[0].id
    return Load(
        server.port,
        server.key,
        mode == "SSE",
        rng,
        leavers,
        models=(model,),
        id_prefix=prefix,
        most=2000,
        squeezed_by=_compression_model(server),
    )


def _books(server: Server) -> Books:
    settings = load_settings(server.config)
    path = Path(settings.billing.database_url.removeprefix("sqlite:///"))
    with sqlite3.connect(path, timeout=10) as database:
        ((workspace_id,),) = database.execute("SELECT id FROM workspaces WHERE name = 'demo'").fetchall()
    prices = {
        model.id: PinnedPrice(
            model.id,
            str(model.price.input_usd_per_mtok),
            str(model.price.output_usd_per_mtok),
            str(model.price.minimum_request_usd),
        )
        for model in settings.models
    }
    for each in settings.compression.models:
        prices[each.id] = PinnedPrice(each.id, str(each.price_usd_per_mtok_input), "0", "0")
    # vLLM keeps no record of its tokens for us: a request cannot have had more than the clients ask for at most.
    return Books(
        settings.billing.database_url, [settings.billing.spool_path], [workspace_id], prices, lambda _: 24
    )


@contextmanager
def real_server() -> Iterator[list[Server]]:
    """A list of one server, which a run may replace by its successor. Stopped at the end."""
    with tempfile.TemporaryDirectory(prefix="pith-faults-real-") as folder:
        config = write_config(Path(folder), **TIMES)
        document = yaml.safe_load(config.read_text())
        document["billing"]["upkeep_s"] = 0.5
        document["compression"]["models"][0]["price_usd_per_mtok_input"] = COMPRESSION_USD
        document["compression"]["chat"] = {"deadline_s": 2}
        config.write_text(yaml.safe_dump(document))
        running = [start_server(config, Path(folder))]
        try:
            yield running
        finally:
            stop_server(running[0])


async def run_all_real(seed: int, only: str, report: Callable[[str, Mode, Tally, str], None]) -> None:
    with real_server() as running:
        for fault in [fault for fault in FAULTS if only in fault.name]:
            for mode in MODES:
                tally, ended, running[0] = await run_real(fault, mode, seed, running[0])
                report(fault.name, mode, tally, ended)
