"""One process tree under measurement: started, found by a mark in its environment, paused while others are measured."""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

import aiohttp
import orjson
import psutil

from benchmarks.load.exchange import Clock, Failed, chat, exchange
from benchmarks.load.loop import Target
from benchmarks.load.processes import Processes, marked, tree

ROOT = Path(__file__).resolve().parents[2]
MARK = "PITH_BENCHMARK_PROCESS"
POLL_S = 0.25
STOP_S = 20.0
COMMAND_S = 600.0
CONFIG_COPY = "pith.yaml"
LAST_LINES = 15
LAST_CHARACTERS = 1200


class CannotRun(RuntimeError):
    """A side that cannot be measured here; the message says why."""


@dataclass(slots=True)
class Server:
    """A command that serves chat completions of `model` at `url`. `key` is asked for when it may have been made."""

    name: str
    model: str
    command: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    url: str
    key: Callable[[], str] = lambda: ""
    # Makes so many keys, each of a project of its own; () where it has none.
    other_keys: Callable[[int], tuple[str, ...]] = lambda count: ()
    start_s: float = 300.0
    metrics_url: str = ""
    mark: str = field(default_factory=lambda: secrets.token_hex(8))
    process: subprocess.Popen[bytes] | None = None

    @property
    def target(self) -> Target:
        return Target(self.url, self.key())

    def target_of(self, projects: int) -> Target:
        """The same, asked with keys of so many projects in turn."""
        return replace(self.target, other_keys=self.other_keys(projects - 1))

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    def processes(self) -> list[psutil.Process]:
        return marked(MARK, self.mark, self.process.pid) if self.process else []

    async def start(self) -> None:
        """Return when a completion has been answered. Raises `CannotRun` with the last lines of its log."""
        process = self._spawn()
        deadline = time.monotonic() + self.start_s
        while not await self.answers():
            if process.poll() is not None:
                raise CannotRun(f"{self.name} ended with {process.returncode}: {self.last_lines()}")
            if time.monotonic() > deadline:
                raise CannotRun(f"{self.name} did not answer within {self.start_s:g} s: {self.last_lines()}")
            await asyncio.sleep(POLL_S)

    def _spawn(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, **self.environment, MARK: self.mark}
        # Whoever stops this program by it would leave the server running.
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                self.command, env=environment, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        return self.process

    async def answers(self) -> bool:
        call = chat(self.model, tokens=1, stream=False, prompts=1)
        try:
            async with self.target.session() as session:
                await exchange(session, call, call.bodies[0], clock=Clock(time.perf_counter()), due_s=0.0)
        except (Failed, OSError, aiohttp.ClientError):
            return False
        return True

    def pause(self) -> None:
        self._tell(signal.SIGSTOP)

    def resume(self) -> None:
        self._tell(signal.SIGCONT)

    def _tell(self, number: signal.Signals) -> None:
        for process in self.processes():
            try:
                process.send_signal(number)
            except psutil.NoSuchProcess:
                continue

    def stop(self) -> None:
        """Ask it to stop, then kill what of it is left."""
        if self.process is None:
            return
        self.resume()
        # Before the first process ends: what it leaves behind is nobody's child.
        started = self.processes()
        # Not SIGINT, which whatever a shell started in the background ignores.
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
        left = [process for process in {*started, *self.processes()} if process.is_running()]
        for process in left:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(left, timeout=STOP_S)
        self.process.wait()
        self.process = None

    def last_lines(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return " | ".join(line.strip() for line in lines[-LAST_LINES:] if line.strip())[-LAST_CHARACTERS:]


async def server_under_test(options: argparse.Namespace, until: ExitStack) -> tuple[Target, Processes]:
    """The server that --url and --pid name, or without --pid a `pith serve` of its own, stopped with `until`.

    Raises `CannotRun`.
    """
    if options.pid:
        return Target(options.url, options.key), partial(tree, options.pid)
    folder = Path(until.enter_context(tempfile.TemporaryDirectory(prefix="pith-benchmark-")))
    server = pith_server(options.config, folder, options.model)
    until.callback(server.stop)
    await server.start()
    return server.target, server.processes


def pith_command(checkout: Path) -> list[str]:
    """The `pith` of a checkout, which its process must have first in its PYTHONPATH. Raises `CannotRun`."""
    try:
        project = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        module, function = project["scripts"]["pith"].split(":")
    except (OSError, ValueError, KeyError) as error:
        raise CannotRun(f"{checkout} is not a checkout of pith: {error!r}") from error
    return [sys.executable, "-c", f"from {module} import {function}; {function}()"]


def pith_server(config: Path, folder: Path, model: str, checkout: Path = ROOT) -> Server:
    """`pith serve` with everything on and a ledger of its own: its state lies in `folder`, beside a copy of the
    configuration, since relative paths in a configuration are relative to it. Raises `CannotRun`."""
    port, ops_port = free_port(), free_port()
    copy = folder / CONFIG_COPY
    copy.write_bytes(config.read_bytes())
    command = [
        *pith_command(checkout), "serve", "--config", str(copy), "--port", str(port), "--ops-port", str(ops_port),
    ]  # fmt: skip
    demo_key = folder / "var" / "demo-key"

    def key() -> str:
        return demo_key.read_text(encoding="utf-8").strip() if demo_key.is_file() else ""

    @cache
    def other_keys(count: int) -> tuple[str, ...]:
        return tuple(new_key(folder, f"load-{count}-{number}", checkout=checkout) for number in range(count))

    url, environment = f"http://127.0.0.1:{port}", {"PYTHONPATH": str(checkout)}
    metrics_url = f"http://127.0.0.1:{ops_port}/metrics"
    return Server("pith", model, command, environment, folder, url, key, other_keys, metrics_url=metrics_url)


def new_key(folder: Path, workspace: str, *, compression: str | None = None, checkout: Path = ROOT) -> str:
    """A key of a workspace of its own on the ledger of the `pith_server` in `folder`, whose chats are compressed so
    by default. Raises `CannotRun`."""
    run = partial(run_pith, folder, checkout=checkout)
    for words in (("workspace", "create", workspace), ("project", "create", workspace, "main")):
        run(*words)
    if compression:
        run("project", "set", f"{workspace}/main", "--compression", compression)
    return str(orjson.loads(run("key", "create", f"{workspace}/main"))["key"])


def run_pith(folder: Path, *words: str, checkout: Path = ROOT) -> str:
    """What a command says on the ledger of the `pith_server` in `folder`. Raises `CannotRun` where it fails."""
    command = [*pith_command(checkout), *words, "--config", str(folder / CONFIG_COPY), "--json"]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=COMMAND_S, check=False
    )
    if done.returncode:
        raise CannotRun(
            f"pith {' '.join(words)} failed: {(done.stderr or done.stdout).strip()[-LAST_CHARACTERS:]}"
        )
    return done.stdout


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
