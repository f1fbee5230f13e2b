"""`pith reload` under load, on a real server: prices, limits, models and code change, and no request notices."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.integration.running import PITH, ROOT, Server, start_server, stop_server, wait_for, write_config

PACKAGES = ("serve", "billing", "models", "compression")
TITLE, NEW_TITLE = 'title="pith"', 'title="pith, another version"'
CLIENTS = 4
# Between an answer and the next request: without it they would keep a core busy for as long as a change takes.
PAUSE_S = 0.05
CHANGE_S = 120


@dataclass
class Traffic:
    """Clients that keep their connections and ask one after the other, JSON and SSE in turn."""

    server: Server
    model: str
    stop: threading.Event = field(default_factory=threading.Event)
    statuses: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def ask(self, number: int) -> None:
        with self.server.client() as http:
            while not self.stop.wait(PAUSE_S):
                try:
                    self._ask_once(http, stream=bool(number % 2))
                except httpx.HTTPError as error:
                    self.wrong.append(repr(error))

    def _ask_once(self, http: httpx.Client, *, stream: bool) -> None:
        messages = [{"role": "user", "content": "Tell me about the river."}]
        body = {"model": self.model, "messages": messages, "max_tokens": 4, "stream": stream}
        reply = http.post("/v1/chat/completions", json=body)
        self.statuses[reply.status_code] += 1
        if reply.status_code != 200 or (stream and not reply.text.endswith("data: [DONE]\n\n")):
            self.wrong.append(f"{reply.status_code}: {reply.text[-200:]}")

    def more(self, requests: int) -> None:
        """Wait until so many more were answered."""
        wanted = self.statuses.total() + requests
        wait_for(lambda: self.statuses.total() >= wanted or self.wrong, what="the traffic goes on")


@contextmanager
def traffic(server: Server, model: str) -> Iterator[Traffic]:
    found = Traffic(server, model)
    threads = [threading.Thread(target=found.ask, args=[number]) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        yield found
    finally:
        found.stop.set()
        for thread in threads:
            thread.join()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the code, to be changed while it runs."""
    folder = tmp_path_factory.mktemp("checkout")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture(scope="module")
def reloaded(tmp_path_factory: pytest.TempPathFactory, checkout: Path) -> Iterator[Server]:
    """A server of its own that runs the copy. Its engine is a fake, which starts in seconds: `benchmarks/reload.py` has
    vLLM's."""
    state = tmp_path_factory.mktemp("reload")
    # For a reload's end to come soon.
    config = write_config(state, idle_timeout_s=5)
    document = yaml.safe_load(config.read_text())
    document["models"] = [{**document["models"][0], "engine": {"kind": "fake"}}]
    document["compression"] = {}
    config.write_text(yaml.safe_dump(document))
    server = start_server(config, state, code=checkout)
    try:
        yield server
    finally:
        stop_server(server)


def pith(server: Server, checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PITH, *arguments, "--config", str(server.config)],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        capture_output=True,
        text=True,
        timeout=CHANGE_S,
        check=False,
    )


def reload(server: Server, checkout: Path, *options: str) -> dict[str, Any]:
    done = pith(server, checkout, "reload", "--json", *options)
    assert done.returncode == 0, done.stdout + done.stderr + "".join(server.lines)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def change(server: Server, edit: Callable[[dict[str, Any]], None]) -> None:
    document = yaml.safe_load(server.config.read_text())
    edit(document)
    server.config.write_text(yaml.safe_dump(document))


def double_the_price(document: dict[str, Any]) -> None:
    price = document["models"][0]["price"]
    price["output_usd_per_mtok"] = float(price["output_usd_per_mtok"]) * 2
    document["server"]["max_body_bytes"] = 100_000


def add_a_model(document: dict[str, Any]) -> None:
    document["models"].append({**document["models"][0], "id": "added", "name": "Added"})


def remove_it_again(document: dict[str, Any]) -> None:
    document["models"].pop()


def test_prices_a_limit_models_and_code_change_under_load_and_no_request_fails(
    reloaded: Server, checkout: Path
) -> None:
    server, model = reloaded, yaml.safe_load(reloaded.config.read_text())["models"][0]["id"]
    with server.client() as http, traffic(server, model) as load:
        load.more(20)
        change(server, double_the_price)
        change(server, add_a_model)
        outcome = reload(server, checkout)
        assert (outcome["pricing_version"], outcome["started"]) == (2, ["model:added"])
        load.more(20)
        large = {"messages": [{"role": "user", "content": "x" * 150_000}], "max_tokens": 1}
        assert http.post("/v1/chat/completions", json=large).status_code == 422
        asked = {"model": "added", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
        assert http.post("/v1/chat/completions", json=asked).status_code == 200
        change(server, remove_it_again)
        api = checkout / "serve/api.py"
        api.write_text(api.read_text().replace(TITLE, NEW_TITLE))
        outcome = reload(server, checkout, "--code", "all")
        assert (outcome["removed"], outcome["started"]) == (["model:added"], [f"model:{model}"])
        assert http.post("/v1/chat/completions", json=asked).status_code in (404, 422)
        assert http.get("/openapi.json").json()["info"]["title"] == "pith, another version"
        load.more(20)
    assert not load.wrong and set(load.statuses) == {200}
    check_the_books(server, checkout)


def check_the_books(server: Server, checkout: Path) -> None:
    """Each charge is exactly its tokens at the version that it names, versions before and after were used, and the
    books are clean."""
    charges = (
        "SELECT e.pricing_version, e.cost_nano_usd, max(p.minimum_nano_usd, "
        "(e.prompt_tokens * p.input_micro_usd_per_mtok + e.completion_tokens * p.output_micro_usd_per_mtok) / 1000.0) "
        "FROM usage_events e JOIN prices p ON p.version = e.pricing_version AND p.model_id = e.model_id"
    )
    with closing(sqlite3.connect(server.state_dir / "pith.db")) as ledger:
        found = ledger.execute(charges).fetchall()
    assert {1, 2} <= {version for version, _, _ in found}
    assert all(abs(cost - due) < 1 for _, cost, due in found)
    done = pith(server, checkout, "reconcile")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_signal_reloads_too_and_what_needs_a_restart_is_refused(reloaded: Server, checkout: Path) -> None:
    before = len(reloaded.lines)
    change(reloaded, lambda document: document["ops"].update(port=1))
    done = pith(reloaded, checkout, "reload")
    assert done.returncode == 2 and "needs a restart of the server: ops.port" in done.stderr
    os.kill(reloaded.pid, signal.SIGHUP)
    wait_for(
        lambda: sum("needs a restart" in line for line in reloaded.lines[before:]) == 2,
        what="the signal is answered",
    )
    assert reloaded.process is not None and reloaded.process.poll() is None
