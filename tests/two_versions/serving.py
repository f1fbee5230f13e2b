"""A real `pith serve` whose code changes from one version to the other and back, under load."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import httpx
import psutil
import yaml

from tests.integration.running import (
    PITH,
    Server,
    command_line,
    start_server,
    stop_server,
    wait_for,
    write_config,
)
from tests.integration.test_reload import PACKAGES, Traffic
from tests.two_versions.before import environment

# Requests that are answered after each change.
EACH = 20
CHANGE_S = 400.0
CLIENTS = 2
PAUSE_S = 0.2
ANEW, KILLED = "a replica is killed and starts anew", "the engine died while it worked on this request"
# The code on the disk from then on, and what takes it.
Change = tuple[Literal["this one", "the one before"], str]
CHANGES: tuple[Change, ...] = (
    ("this one", ANEW),
    ("this one", "pith reload --code http"),
    ("this one", "pith reload --code all"),
    ("the one before", ANEW),
    ("the one before", "pith reload --code http"),
    ("the one before", "pith reload --code all"),
)


@dataclass
class Served:
    """What became of the requests, and what went wrong. `died`: those whose replica was killed as it worked on them."""

    died: int = 0
    changes: list[str] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def serve_both(before: Path, now: Path, folder: Path, changes: Sequence[Change] = CHANGES) -> Served:
    """A server of the version before goes through the changes, one after the other. Each is followed by requests."""
    found, checkout, state = Served(), folder / "checkout", folder / "state"
    for each in (checkout, state):
        each.mkdir()
    put(before, checkout)
    with server_of(checkout, state) as server, asking(server, found) as load:
        for version, how in changes:
            put(now if version == "this one" else before, checkout)
            if how == ANEW:
                kill_replica(server)
            else:
                done = pith(checkout, server, *how.split()[1:])
                found.wrong += [done.stdout + done.stderr] if done.returncode else []
            _go_on(load, found, f"{version}: {how}")
    for code in (now, before):
        done = pith(code, server, "reconcile", "--full")
        found.wrong += [done.stdout + done.stderr] if done.returncode else []
    return found


class PacedTraffic(Traffic):
    def _ask_once(self, http: httpx.Client, *, stream: bool) -> None:
        super()._ask_once(http, stream=stream)
        self.stop.wait(PAUSE_S)


def put(code: Path, checkout: Path) -> None:
    """As `git checkout` does, below a server that runs."""
    for package in PACKAGES:
        shutil.rmtree(checkout / package, ignore_errors=True)
        shutil.copytree(code / package, checkout / package, ignore=shutil.ignore_patterns("__pycache__"))


@contextmanager
def server_of(checkout: Path, state: Path) -> Iterator[Server]:
    """With a fake engine."""
    config = write_config(state, idle_timeout_s=2, start_wait_s=120)
    document = yaml.safe_load(config.read_text())
    document["models"] = [{**document["models"][0], "engine": {"kind": "fake"}}]
    document["compression"] = {}
    config.write_text(yaml.safe_dump(document))
    server = start_server(config, state, code=checkout)
    try:
        yield server
    finally:
        stop_server(server)


@contextmanager
def asking(server: Server, found: Served) -> Iterator[Traffic]:
    """One client that streams and one that does not."""
    load = PacedTraffic(server, yaml.safe_load(server.config.read_text())["models"][0]["id"])
    threads = [threading.Thread(target=load.ask, args=[number]) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        yield load
    finally:
        load.stop.set()
        for thread in threads:
            thread.join()
        found.statuses = load.statuses


def kill_replica(server: Server) -> None:
    """Ray starts another one, of the code that is on the disk; what it carried fails."""
    family = psutil.Process(server.pid).children(recursive=True)
    victim = next(one for one in family if "ServeReplica:model" in command_line(one))
    victim.kill()
    wait_for(lambda: not victim.is_running(), what="the replica is gone")


def pith(code: Path, server: Server, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PITH, *arguments, "--config", str(server.config)],
        cwd=code,
        env=environment(code),
        capture_output=True,
        text=True,
        timeout=CHANGE_S,
        check=False,
    )


def _go_on(load: Traffic, found: Served, change: str) -> None:
    wanted = load.statuses[200] + EACH
    wait_for(
        lambda: load.statuses[200] >= wanted, what=f"requests are answered after {change}", timeout_s=CHANGE_S
    )
    found.changes.append(change)
    died = [each for each in load.wrong if KILLED in each]
    if change.endswith(ANEW) and len(died) <= CLIENTS:
        found.died += len(died)
        load.wrong = [each for each in load.wrong if each not in died]
    found.wrong += [f"{change}: {each}" for each in load.wrong]
    load.wrong = []
