"""Restarts and reloads of the HTTP service under load: `python -m tests.lifecycle --restarts 50 --reloads 50`.

Servers are as `pith serve` makes them, but without Ray, with a fake engine, and with threads for the two HTTP
processes of each. One that is restarted takes its socket as systemd gives it, and SIGTERM stops it; one that is
reloaded gets a new price list each time. Clients in a process of their own ask one after another, half on kept
connections, half on new ones, JSON and streams, and count what was not answered whole. At the end the books must add
up, with one event for each answer, charged by its version of the prices."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from threading import Thread
from typing import Annotated, Any

import typer

from billing.books import invariants
from billing.store.database import open_database
from billing.usage import now
from serve.catalog.offered import catalog_of
from serve.config.settings import Settings
from serve.money.ledger_setup import prepare_ledger
from serve.processes.coordinator import open_coordinator
from serve.processes.listener import FIRST_GIVEN, FOR_WHOM, HOW_MANY
from serve.processes.run_folder import run_folder
from tests.integration.running import free_port
from tests.migrated import migrated_file
from tests.serve.cluster.reloading import FakeProcess, reloading
from tests.serve.served import HI, settings_document

CLIENTS, PROCESSES, TOKENS = 4, 2, 6
ASK_S, STOP_S, POLL_S = 120.0, 120.0, 0.02


def serve(settings: Settings, sock: socket.socket) -> None:
    """One server, until SIGTERM. In a process of its own."""
    signals = {signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    os.dup2(sock.fileno(), FIRST_GIVEN)
    os.environ |= {HOW_MANY: "1", FOR_WHOM: str(os.getpid())}
    port = settings.server.port
    with (
        run_folder(settings.state_dir, port) as folder,
        open_coordinator("127.0.0.1", port, folder) as coordinator,
    ):
        running = [FakeProcess(settings, folder) for _ in range(PROCESSES)]
        signal.sigwait(signals)
        coordinator.stop_listening()
        ends = [Thread(target=process.end) for process in running]
        for end in ends:
            end.start()
        for end in ends:
            end.join()


class Clients:
    """Ask until they are told to stop, and write what they found to a file."""

    def __init__(self, port: int, key: str, found: Path) -> None:
        self._port, self._found = port, found
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self._outcomes: Counter[str] = Counter()
        self._longest_s, self._is_over = 0.0, False

    def run(self) -> None:
        """In a process of its own, until SIGTERM; what was found so far is in the file meanwhile."""
        signals = {signal.SIGTERM}
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        threads = [Thread(target=self._client, args=[number]) for number in range(CLIENTS)]
        for thread in threads:
            thread.start()
        while signal.sigtimedwait(signals, POLL_S) is None:
            self._write()
        self._is_over = True
        for thread in threads:
            thread.join()
        self._write()

    def _write(self) -> None:
        new = self._found.with_suffix(".new")
        new.write_text(json.dumps({"outcomes": dict(self._outcomes), "longest_s": self._longest_s}))
        new.replace(self._found)

    def _client(self, number: int) -> None:
        connection, turn = HTTPConnection("127.0.0.1", self._port, timeout=ASK_S), 0
        while not self._is_over:
            began, turn = time.monotonic(), turn + 1
            try:
                outcome = self._ask(connection, stream=turn % 2 == 1)
            except (OSError, HTTPException) as error:
                outcome = type(error).__name__
            if outcome != "200" or number % 2:
                connection.close()
            self._outcomes[outcome] += 1
            self._longest_s = max(self._longest_s, time.monotonic() - began)
        connection.close()

    def _ask(self, connection: HTTPConnection, *, stream: bool) -> str:
        body = {"messages": HI, "max_tokens": TOKENS, "stream": stream, "model": "alpha"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), self._headers)
        reply = connection.getresponse()
        whole = reply.read()
        is_whole = whole.endswith(b"data: [DONE]\n\n") if stream else b'"usage"' in whole
        return str(reply.status) if is_whole or reply.status != 200 else "cut short"


def forked(work: Callable[..., None], *given: object) -> int:
    """The process that does it. This one has no threads, and has imported everything."""
    pid = os.fork()
    if pid:
        return pid
    try:
        work(*given)
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def ended(pid: int, by: signal.Signals = signal.SIGTERM) -> None:
    """Stop the process. Raises `RuntimeError` where it did not end well."""
    os.kill(pid, by)
    _, status = os.waitpid(pid, 0)
    if status and by is signal.SIGTERM:
        raise RuntimeError(f"a process ended with status {os.waitstatus_to_exitcode(status)}")


def of_clients(found: Path) -> tuple[dict[str, int], float]:
    told = json.loads(found.read_text())
    return told["outcomes"], told["longest_s"]


def answered(found: Path) -> int:
    return int(json.loads(found.read_text())["outcomes"].get("200", 0)) if found.exists() else 0


def until_answered(found: Path, number: int) -> None:
    """Raises `TimeoutError`."""
    until = time.monotonic() + ASK_S
    while answered(found) < number:
        if time.monotonic() > until:
            raise TimeoutError(
                f"{answered(found)} answers, not {number}, after {ASK_S:g} s: {found.read_text()}"
            )
        time.sleep(POLL_S)


def prepared(folder: Path, port: int) -> tuple[Settings, str]:
    settings = Settings.model_validate(settings_document(folder, server={"port": port}))
    (folder / "pith.db").write_bytes(asyncio.run(migrated_file()))
    key = asyncio.run(prepare_ledger(settings, catalog_of(settings), now=now()))
    assert key is not None
    return settings, key


def restarted(
    folder: Path, restarts: int, each: int, *, by: signal.Signals = signal.SIGTERM
) -> tuple[dict[str, int], float]:
    """What the clients found, and the longest that one waited; each server answers so many requests at least."""
    found = folder / "found.json"
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as sock:
        port = sock.getsockname()[1]
        settings, key = prepared(folder, port)
        server = forked(serve, settings, sock)
        clients = forked(Clients(port, key, found).run)
        try:
            for _ in range(restarts):
                until_answered(found, answered(found) + each)
                ended(server, by)
                server = forked(serve, settings, sock)
            until_answered(found, answered(found) + each)
        finally:
            ended(clients)
            ended(server)
    return of_clients(found)


PRICES = ("400", "500")


def reload(folder: Path, port: int, reloads: int, each: int) -> None:
    """A server that is reloaded so often. In a process of its own, which ends with it."""
    found = folder / "found.json"
    with reloading(folder, port) as server:
        (folder / "key").write_text(server.key)
        for number in range(reloads):
            until_answered(found, answered(found) + each)

            def reprice(document: dict[str, Any], price: str = PRICES[(number + 1) % 2]) -> None:
                document["models"][0]["price"]["output_usd_per_mtok"] = price

            server.change(reprice)
            outcome = server.reload()
            if outcome["exit"]:
                raise RuntimeError(f"a reload failed: {outcome}")
        until_answered(found, answered(found) + each)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        (folder / "done").touch()
        signal.sigwait({signal.SIGTERM})


def reloaded(folder: Path, reloads: int, each: int) -> tuple[dict[str, int], float]:
    """What the clients found, and the longest that one waited."""
    found, port = folder / "found.json", free_port()
    server = forked(reload, folder, port, reloads, each)
    until_there(folder / "key", server)
    clients = forked(Clients(port, (folder / "key").read_text(), found).run)
    try:
        until_there(folder / "done", server)
    finally:
        ended(clients)
        ended(server)
    return of_clients(found)


def until_there(path: Path, maker: int) -> None:
    """Raises `RuntimeError` where the process that makes it ends before."""
    while not path.exists():
        if os.waitid(os.P_PID, maker, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            raise RuntimeError(f"the server ended before {path.name} was there")
        time.sleep(POLL_S)


def wrong_charges(folder: Path) -> list[tuple[int, int]]:
    """Version and cost of what was charged otherwise than its price list says: 2 tokens of prompt, 6 of the reply."""
    with closing(sqlite3.connect(folder / "pith.db")) as ledger:
        charged = ledger.execute(
            "SELECT DISTINCT pricing_version, cost_nano_usd FROM usage_events"
        ).fetchall()
    due = {version: 2 * 100_000 + TOKENS * 1000 * int(PRICES[(version + 1) % 2]) for version, _ in charged}
    return [(version, cost) for version, cost in charged if cost != due[version]]


def books(folder: Path) -> tuple[int, int, list[object]]:
    """Usage events, holds, and what is wrong with the books."""

    async def wrong() -> list[object]:
        database = open_database(f"sqlite:///{folder / 'pith.db'}")
        try:
            return list(await database.read(invariants.differences))
        finally:
            await database.close()

    with closing(sqlite3.connect(folder / "pith.db")) as ledger:
        events, holds = (
            int(ledger.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
            for table in ("usage_events", "holds")
        )
    return events, holds, asyncio.run(wrong())


def main(
    restarts: Annotated[int, typer.Option(min=0, help="How often a server is stopped and started.")] = 50,
    reloads: Annotated[int, typer.Option(min=0, help="How often one is reloaded.")] = 50,
    each: Annotated[int, typer.Option(min=1, help="Answers in between at least.")] = 20,
) -> None:
    """Restart and reload servers under load, and count what failed."""
    is_clean = True
    for what, times in (("restarts", restarts), ("reloads", reloads)):
        with tempfile.TemporaryDirectory(prefix=f"pith-{what}-") as name:
            if times:
                make = restarted if what == "restarts" else reloaded
                outcomes, longest_s = make(Path(name), times, each)
                is_clean &= told(f"{times} {what}", Path(name), outcomes, longest_s)
    raise typer.Exit(0 if is_clean else 1)


def told(what: str, folder: Path, outcomes: dict[str, int], longest_s: float) -> bool:
    """Say what was found; whether it is as it must be."""
    events, holds, wrong = books(folder)
    charged = wrong_charges(folder)
    typer.echo(
        f"{what}, {sum(outcomes.values()):,} requests: {outcomes}; the longest took {longest_s:.1f} s; {events:,} "
        f"events, {holds} holds, wrong charges: {charged or 'none'}, books: {wrong or 'clean'}"
    )
    return set(outcomes) == {"200"} and events == outcomes["200"] and not (holds or wrong or charged)


if __name__ == "__main__":
    typer.run(main)
