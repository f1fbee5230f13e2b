"""Kills engines under streams of a `pith serve` of its own: `python -m tests.integration.engine_kills --runs 200`.

Each stream is greedy and of a fixed length; at a token drawn from the seed its engine core or its whole replica is
killed. What is counted: streams that ended, that have the text and the tokens of one that nobody disturbed, usage
events, and the longest silence within each stream."""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated

import httpx
import psutil
import typer
import yaml

from benchmarks.load.kept import total
from tests.integration.running import Server, replica_of, start_server, stop_server, wait_for, write_config

MODEL = "pith-mini"
TOKENS = 300
ASKED = {
    "messages": [{"role": "user", "content": "Tell me."}],
    "max_tokens": TOKENS,
    "ignore_eos": True,
    "temperature": 0,
    "stream": True,
}
UP_S, REPLY_S = 180.0, 120.0
RESTARTS = "pith_engine_restarts_total"


@dataclass
class Stream:
    status: int = 0
    request_id: str = ""
    text: str = ""
    tokens: int = 0
    error: str = ""
    silence_s: float = 0.0
    victim: psutil.Process | None = None


@dataclass
class Tally:
    ended: int = 0
    equal: int = 0
    events: int = 0
    silences_s: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)


def read(server: Server, *, kill_at: int | None = None, replica: bool = False) -> Stream:
    """One stream, under which the engine that writes it is killed at its n-th piece of text."""
    found, pieces, last = Stream(), 0, time.monotonic()
    with (
        server.client(timeout_s=REPLY_S) as client,
        client.stream("POST", "/v1/chat/completions", json=ASKED) as reply,
    ):
        found.status, found.request_id = reply.status_code, reply.headers["x-request-id"]
        for line in reply.iter_lines():
            if not line.startswith("data: {"):
                continue
            event, now = json.loads(line.removeprefix("data: ")), time.monotonic()
            if pieces:
                found.silence_s = max(found.silence_s, now - last)
            last = now
            found.error = found.error or json.dumps(event.get("error", ""))[:200].strip('"')
            found.tokens = (event.get("usage") or {}).get("completion_tokens", found.tokens)
            for choice in event.get("choices", ()):
                piece = choice["delta"].get("content") or ""
                found.text += piece
                pieces += bool(piece)
            if kill_at is not None and pieces >= kill_at:
                found.victim, kill_at = killed(server, replica=replica), None
    return found


def killed(server: Server, *, replica: bool) -> psutil.Process:
    """The core that is at work, or its replica."""
    cores = server.engine_processes(MODEL)
    core = max(cores, key=lambda one: one.cpu_percent(interval=0.02)) if len(cores) > 1 else cores[0]
    victim = replica_of(core) if replica else core
    victim.send_signal(signal.SIGKILL)
    return victim


def all_run(server: Server, replicas: int, restarts_before: float | None) -> bool:
    """Whether every engine takes requests. `restarts_before`: the engines started again before a core was killed."""
    if len(server.engine_processes(MODEL)) != replicas:
        return False
    text = metrics(server)
    is_back = restarts_before is None or total(text, RESTARTS) > restarts_before
    return is_back and total(text, "pith_replicas_running") == total(text, "pith_replicas_wanted")


def metrics(server: Server) -> str:
    return httpx.get(f"http://127.0.0.1:{server.ops_port}/metrics", timeout=REPLY_S).text


def events_of(server: Server, request_id: str) -> int:
    with sqlite3.connect(server.state_dir / "pith.db", timeout=120) as database:
        query = "SELECT count(*) FROM usage_events WHERE request_id = ?"
        return int(database.execute(query, [request_id]).fetchone()[0])


def main(
    runs: Annotated[int, typer.Option(min=1, help="How many streams are cut.")] = 20,
    replicas: Annotated[int, typer.Option(min=1, max=2, help="Replicas of the model.")] = 1,
    seed: Annotated[
        int, typer.Option(help="Of the tokens at which they are cut, and of what is killed.")
    ] = 28,
) -> None:
    """Kill engines under streams, and compare these with one that nobody disturbed."""
    # Told to stop, it stops its server.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    rng, tally = random.Random(seed), Tally()
    with tempfile.TemporaryDirectory(prefix="pith-kills-") as folder:
        config = write_config(Path(folder))
        document = yaml.safe_load(config.read_text())
        document["models"] = [model for model in document["models"] if model["id"] == MODEL]
        document["models"][0]["replicas"] = {"min": replicas, "max": replicas}
        config.write_text(yaml.safe_dump(document))
        server = start_server(config, Path(folder))
        try:
            whole = read(server)
            assert (whole.status, whole.tokens) == (200, TOKENS), whole
            for number in range(runs):
                at, replica = rng.randrange(1, TOKENS // 2), rng.random() < 0.5
                before = total(metrics(server), RESTARTS)
                found = read(server, kill_at=at, replica=replica)
                tally.ended += found.status == 200 and not found.error and found.tokens == TOKENS
                tally.equal += (found.text, found.tokens) == (whole.text, whole.tokens)
                tally.events += events_of(server, found.request_id)
                tally.silences_s.append(found.silence_s)
                tally.errors[found.error] += 1
                wait_for(
                    partial(all_run, server, replicas, None if replica else before),
                    what="engines run",
                    timeout_s=UP_S,
                )
                typer.echo(
                    f"{number + 1}: {'replica' if replica else 'core'}, {found.tokens} tokens, silent for "
                    f"{found.silence_s:.2f} s {found.error}"
                )
        finally:
            stop_server(server)
    silences = sorted(tally.silences_s)
    typer.echo(
        f"{runs} kills, {replicas} replicas: {tally.ended} ended, {tally.equal} equal, {tally.events} events; "
        f"silence: median {median(silences):.2f} s, longest {silences[-1]:.2f} s; errors: {dict(tally.errors)}"
    )
    raise typer.Exit(0 if tally.ended == tally.equal == tally.events == runs else 1)


if __name__ == "__main__":
    typer.run(main)
