"""Requests that `pith reload` costs: a server of its own under load while prices, a limit, models and code change.

    python -m benchmarks.reload --requests 5000 [--clients 8] [--within-s 290]
    python -m benchmarks.reload --restarts 50                # the whole server, behind a socket that this program keeps

Half of the clients keep their connections, half open a new one each time; JSON and SSE in turn, the ledger on. It ends
when so many requests were answered, then counts: failed ones, charges that are not what their price version says, and
what `pith reconcile` finds. Exit code 1 if any is not zero.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from benchmarks.load.arguments import count
from benchmarks.load.server import free_port
from benchmarks.startup import wait_until_ready

PITH = [sys.executable, "-c", "from serve.cli.main import main; main()"]
BODY = {"messages": [{"role": "user", "content": "Tell me about the river."}], "max_tokens": 4}
REQUEST_S, RELOAD_S, PAUSE_S = 120.0, 240.0, 2.0
CHARGES = """
SELECT count(*), sum(abs(e.cost_nano_usd - max(p.minimum_nano_usd,
  (e.prompt_tokens * p.input_micro_usd_per_mtok + e.completion_tokens * p.output_micro_usd_per_mtok) / 1000.0)) >= 1),
  count(DISTINCT e.pricing_version)
FROM usage_events e JOIN prices p ON p.version = e.pricing_version AND p.model_id = e.model_id
"""


@dataclass
class Load:
    """Clients that ask until so many requests were answered, and go on while a change is under way."""

    url: str
    key: str
    wanted: int
    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    stop: bool = False

    async def client(self, number: int) -> None:
        connector = aiohttp.TCPConnector(force_close=number % 2 == 1)
        headers, timeout = {"Authorization": f"Bearer {self.key}"}, aiohttp.ClientTimeout(total=REQUEST_S)
        async with aiohttp.ClientSession(headers=headers, connector=connector, timeout=timeout) as session:
            for turn in itertools.count():
                if self.stop:
                    return
                began = time.monotonic()
                self.outcomes[await self._ask(session, stream=turn % 2 == 1)] += 1
                self.seconds.append(time.monotonic() - began)

    async def _ask(self, session: aiohttp.ClientSession, *, stream: bool) -> str:
        try:
            async with session.post(
                f"{self.url}/v1/chat/completions", json=BODY | {"stream": stream}
            ) as reply:
                text = await reply.read()
                whole = not stream or text.endswith(b"data: [DONE]\n\n")
                return str(reply.status) if whole else "cut short"
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return type(error).__name__

    async def more(self, number: int) -> None:
        """Until so many more were answered. Raises `TimeoutError`."""
        wanted, until = self.outcomes.total() + number, time.monotonic() + REQUEST_S
        while self.outcomes.total() < wanted:
            if time.monotonic() > until:
                raise TimeoutError(f"{self.outcomes.total()} answers after {REQUEST_S:g} s, not {wanted}")
            await asyncio.sleep(PAUSE_S / 40)

    @property
    def is_done(self) -> bool:
        return self.outcomes.total() >= self.wanted


def own_config(folder: Path) -> Path:
    """The profile of tiny models with one of them, its state in `folder`."""
    document = yaml.safe_load(Path("configs/tiny.yaml").read_text())
    document |= {"state_dir": str(folder), "models": document["models"][:1], "compression": {}}
    document["billing"] |= {"database_url": f"sqlite:///{folder}/pith.db", "spool_path": f"{folder}/spool.db"}
    document["demo"] = {"key_path": f"{folder}/demo-key"}
    # A connection that says nothing ends soon, and with it a reload.
    document["server"] = document.get("server", {}) | {"idle_timeout_s": 5}
    document["ops"] = {"port": free_port()}
    path = folder / "pith.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def _price(document: dict[str, Any]) -> None:
    price = document["models"][0]["price"]
    price["output_usd_per_mtok"] = float(price["output_usd_per_mtok"]) + 1


def _limit(document: dict[str, Any]) -> None:
    document["server"]["max_body_bytes"] = document["server"].get("max_body_bytes", 2**20) + 1024


def _add(document: dict[str, Any]) -> None:
    document["models"].append({**document["models"][0], "id": "added", "engine": {"kind": "fake"}})


def _remove(document: dict[str, Any]) -> None:
    document["models"].pop()


def _fake(document: dict[str, Any]) -> None:
    document["models"][0] |= {"engine": {"kind": "fake"}, "capabilities": {}}


def _nothing(document: dict[str, Any]) -> None:
    pass


# What is changed in the file, and options of `pith reload`, in turn.
CHANGES: tuple[tuple[str, Callable[[dict[str, Any]], None], tuple[str, ...]], ...] = (
    ("a price", _price, ()),
    ("a limit", _limit, ()),
    ("a model added", _add, ()),
    ("a model removed", _remove, ()),
    ("code", _nothing, ("--code", "all")),
)


def change(config: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    document = yaml.safe_load(config.read_text())
    edit(document)
    config.write_text(yaml.safe_dump(document))


async def reload(config: Path, options: tuple[str, ...]) -> float:
    """Seconds until it was in force. Raises `RuntimeError` with what it said."""
    began = time.monotonic()
    command = [*PITH, "reload", "--config", str(config), *options]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said, _ = await asyncio.wait_for(process.communicate(), RELOAD_S)
    if process.returncode:
        raise RuntimeError(said.decode())
    return time.monotonic() - began


async def run(load: Load, config: Path, clients: int, within_s: float) -> list[tuple[str, float]]:
    """What was changed, and how long each change took, until enough requests were answered or the time is over."""
    made: list[tuple[str, float]] = []
    until = time.monotonic() + within_s
    async with asyncio.TaskGroup() as group:
        for number in range(clients):
            group.create_task(load.client(number))
        try:
            for name, edit, options in itertools.cycle(CHANGES):
                if (load.is_done and len(made) >= len(CHANGES)) or time.monotonic() > until:
                    break
                await asyncio.sleep(PAUSE_S)
                change(config, edit)
                made.append((name, await reload(config, options)))
                print(f"{load.outcomes.total():6} requests; {name}: {made[-1][1]:.1f} s", flush=True)
        finally:
            load.stop = True
    return made


def report(load: Load, made: list[tuple[str, float]], folder: Path, config: Path) -> bool:
    """Print what was found; whether nothing failed."""
    with closing(sqlite3.connect(folder / "pith.db")) as ledger:
        charged, wrong, versions = ledger.execute(CHARGES).fetchone()
    books = subprocess.run([*PITH, "reconcile", "--config", str(config)], capture_output=True, check=False)
    failed = load.outcomes.total() - load.outcomes["200"]
    by_name = {name: [s for other, s in made if other == name] for name, _ in made}
    print("| changed | times | median s until in force |\n|---|---|---|")
    for name, seconds in by_name.items():
        print(f"| {name} | {len(seconds)} | {statistics.median(seconds):.1f} |")
    found = {
        "requests": load.outcomes.total(),
        "failed": failed,
        "outcomes": dict(load.outcomes),
        "longest_s": round(max(load.seconds), 2),
        "charged": charged,
        "wrong_charges": wrong,
        "price_versions": versions,
        "reconcile": books.returncode,
    }
    print(json.dumps(found))
    return not (failed or wrong or books.returncode)


# As systemd starts a service: the socket is its descriptor 3, and the number is its own.
BEHIND_SOCKET = 'exec 3<&"$SOCKET"; export LISTEN_FDS=1 LISTEN_PID=$$; unset SOCKET; exec "$@"'


@dataclass
class Servers:
    """One `pith serve` after another on one port, whose socket stays open."""

    config: Path
    sock: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0), backlog=4096))
    process: subprocess.Popen[str] | None = None

    @property
    def port(self) -> int:
        return int(self.sock.getsockname()[1])

    def start(self) -> str:
        """Return the key when it is ready. Raises `RuntimeError`."""
        words = [*PITH, "serve", "--config", str(self.config), "--port", str(self.port)]
        descriptor = self.sock.fileno()
        self.process = subprocess.Popen(
            ["sh", "-c", BEHIND_SOCKET, "sh", *words],
            stdout=subprocess.PIPE, text=True, pass_fds=(descriptor,),
            env={**os.environ, "PYTHONUNBUFFERED": "1", "SOCKET": str(descriptor)},
        )  # fmt: skip
        key = wait_until_ready(self.process, lambda line: None)
        # What it says of each reload would fill the pipe.
        threading.Thread(target=deque, args=(self.process.stdout, 0), daemon=True).start()
        return key

    def stop(self) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGTERM)
            self.process.wait(60)


async def restarted(load: Load, servers: Servers, options: argparse.Namespace) -> list[tuple[str, float]]:
    """How long each restart took, from SIGTERM until the next server was ready; each after some replies of the last."""
    made: list[tuple[str, float]] = []
    until = time.monotonic() + options.within_s
    async with asyncio.TaskGroup() as group:
        for number in range(options.clients):
            group.create_task(load.client(number))
        try:
            while len(made) < options.restarts and time.monotonic() < until:
                await load.more(5 * options.clients)
                began = time.monotonic()
                await asyncio.to_thread(servers.stop)
                await asyncio.to_thread(servers.start)
                made.append(("the server", time.monotonic() - began))
                print(f"{load.outcomes.total():6} requests; restarted: {made[-1][1]:.1f} s", flush=True)
        finally:
            load.stop = True
    return made


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=count, default=5000)
    parser.add_argument("--clients", type=count, default=8)
    parser.add_argument("--within-s", type=count, default=290, help="no change is begun after that")
    parser.add_argument("--restarts", type=count, help="restart the server so often, instead of reloading")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = own_config(folder)
        if options.restarts:
            change(config, _fake)
        servers = Servers(config)
        try:
            load = Load(f"http://127.0.0.1:{servers.port}", servers.start(), options.requests)
            changing = (
                restarted(load, servers, options)
                if options.restarts
                else run(load, config, options.clients, options.within_s)
            )
            is_clean = report(load, asyncio.run(changing), folder, config)
        finally:
            servers.stop()
    raise SystemExit(0 if is_clean else 1)


if __name__ == "__main__":
    main()
