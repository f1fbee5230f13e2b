"""A real `pith serve` whose code changes from one version to the other and back, under load."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import yaml

from tests.integration.running import Server, command_line, start_server, stop_server, write_config
from tests.integration.test_reload import PACKAGES, pith, reload, traffic

# Requests that must be answered between two changes.
EACH = 40


@dataclass
class Served:
    """What became of the requests, and what went wrong."""

    changes: list[str] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def put(code: Path, checkout: Path) -> None:
    """As `git checkout` does, below a server that runs."""
    for package in PACKAGES:
        shutil.rmtree(checkout / package, ignore_errors=True)
        shutil.copytree(code / package, checkout / package, ignore=shutil.ignore_patterns("__pycache__"))


@contextmanager
def server_of(checkout: Path, state: Path) -> Iterator[Server]:
    """With a fake engine, and a compression model beside it."""
    config = write_config(state, idle_timeout_s=2)
    document = yaml.safe_load(config.read_text())
    document["models"] = [{**document["models"][0], "engine": {"kind": "fake"}}]
    config.write_text(yaml.safe_dump(document))
    server = start_server(config, state, code=checkout)
    try:
        yield server
    finally:
        stop_server(server)


def kill(server: Server, name: str) -> None:
    """The process of this application: Ray starts another one, of the code that is on the disk."""
    family = psutil.Process(server.pid).children(recursive=True)
    victim = next(one for one in family if f"ServeReplica:{name}" in command_line(one))
    victim.kill()
    victim.wait(60)


def serve_both(before: Path, now: Path, folder: Path) -> Served:
    """From one to the other and back: HTTP alone, a replica that dies, all; each step under load."""
    found, checkout, state = Served(), folder / "checkout", folder / "state"
    for each in (checkout, state):
        each.mkdir()
    put(before, checkout)
    with server_of(checkout, state) as server:
        model = yaml.safe_load(server.config.read_text())["models"][0]["id"]
        with traffic(server, model) as load:
            load.more(EACH)
            for name, code in (("this one", now), ("the one before", before), ("this one again", now)):
                put(code, checkout)
                for options in (("--code", "http"), ("--code", "all")):
                    reload(server, checkout, *options)
                    load.more(EACH)
                    found.changes.append(f"{name}, {' '.join(options)}")
        found.statuses, found.wrong = load.statuses, load.wrong
        done = pith(server, checkout, "reconcile", "--full")
        if done.returncode:
            found.wrong.append(done.stdout + done.stderr)
    return found
