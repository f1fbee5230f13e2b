"""Failed requests and silence while a process of `pith serve` that was killed under load (SIGKILL) is replaced.

    python -m benchmarks.recovery                 # starts servers of its own and kills each kind of process in turn
    python -m benchmarks.recovery --kill ingress --rounds 5

Clients send chat completions of 8 tokens in a closed loop (where a compression's worker is killed, compressions): half
over kept connections, half over a new one each. A request that came after the process was gone is counted apart from
those that it may have carried. For `redis` and `database` the server has a Redis, which is started again at once, and a
PostgreSQL, of which one of the processes that work for the server is killed: it then ends all of them, and recovers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import aiohttp
import psutil
import yaml

from benchmarks.ledger.postgres_server import private_postgres
from benchmarks.load.arguments import count
from benchmarks.load.kept import total
from benchmarks.load.processes import role_of, tree
from benchmarks.load.server import Server, free_port, new_key, pith_server, run_pith
from benchmarks.load.text import QUERY, made_up

ROLES = {
    "ingress": "ingress replica",
    "core": "vLLM engine core",
    "replica": "engine replica",
    "controller": "Ray Serve controller",
    "worker": "compression workers",
    "redis": "Redis",
    "database": "database",
}
OUTSIDE = ("redis", "database")
CHAT = {"messages": [{"role": "user", "content": "Tell me about the river."}], "max_tokens": 8}
COMPRESSION = {"query": QUERY, "input": made_up(3000), "compression": {"target_ratio": 0.4}}
MODEL = "pith-mini"
# The demo's project has limits of its own, which the load would reach.
LIMITS = ("--requests-per-minute", "1000000", "--max-in-flight", "1000")
WARM_UP_S, QUIET_S, DEADLINE_S, REQUEST_S = 3.0, 3.0, 180.0, 200.0


@dataclass(frozen=True)
class Reply:
    """One request; times in seconds by `time.monotonic`."""

    began: float
    ended: float
    outcome: str


@dataclass(frozen=True)
class Round:
    """Counts are of requests. `silent_s` is from the kill to the first success of a request that came after it;
    `replaced_s` until as many processes of the role answer as before."""

    killed: str
    succeeded: int
    refused: int
    carried: int
    failed_carried: dict[str, int]
    failed_later: dict[str, int]
    silent_s: float
    replaced_s: float
    kept_connections: list[int] = field(default_factory=list)


@dataclass
class Load:
    """Clients that ask until `stop`."""

    url: str
    key: str
    path: str = "/v1/chat/completions"
    body: dict[str, Any] = field(default_factory=lambda: CHAT)
    replies: list[Reply] = field(default_factory=list)
    stop: bool = False

    async def client(self, *, keeps_connection: bool) -> None:
        connector = aiohttp.TCPConnector(force_close=not keeps_connection)
        timeout = aiohttp.ClientTimeout(total=REQUEST_S)
        headers = {"Authorization": f"Bearer {self.key}"}
        async with aiohttp.ClientSession(headers=headers, connector=connector, timeout=timeout) as session:
            while not self.stop:
                began = time.monotonic()
                outcome = await self._ask(session)
                self.replies.append(Reply(began, time.monotonic(), outcome))
                if outcome != "200":
                    await asyncio.sleep(0.05)

    async def _ask(self, session: aiohttp.ClientSession) -> str:
        try:
            async with session.post(f"{self.url}{self.path}", json=self.body) as reply:
                await reply.read()
                return str(reply.status)
        except aiohttp.ClientConnectorError:
            return "refused"
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return type(error).__name__


@dataclass
class Redis:
    """One on loopback that keeps nothing on disk."""

    folder: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> None:
        words = [
            "redis-server",
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--dir",
            str(self.folder),
        ]
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()


@dataclass(frozen=True)
class Stage:
    """A server, a key of it, and what it needs besides."""

    pid: int
    port: int
    key: str
    redis: Redis
    database_port: int = 0

    def victim(self, kind: str) -> psutil.Process:
        if kind == "redis":
            assert self.redis.process is not None
            return psutil.Process(self.redis.process.pid)
        found = self.backends() if kind == "database" else processes(self.pid, ROLES[kind])
        if kind == "worker":
            # Not the process that they are forked from.
            found = [one for one in found if one.ppid() in {other.pid for other in found}]
        return found[0]

    def backends(self) -> list[psutil.Process]:
        """Processes of PostgreSQL that have a connection of the server's."""
        found = []
        for process in psutil.process_iter():
            try:
                words = process.cmdline()
                if f"port={self.database_port}" in words:
                    found = process.children()
            except psutil.Error:
                continue
        return [one for one in found if " ".join(one.cmdline()).startswith("postgres: pith ")]

    def is_replaced(self, kind: str, before: list[psutil.Process], victim: psutil.Process) -> bool:
        """Whether as many as before are up; an ingress is, when it has the port and a connection."""
        if kind in OUTSIDE:
            return True
        found = [one for one in processes(self.pid, ROLES[kind]) if one != victim]
        if kind == "ingress":
            found = [one for one, open_ in zip(found, kept(found, self.port), strict=True) if open_]
        return len(found) >= len(before)


def processes(pid: int, role: str) -> list[psutil.Process]:
    found = []
    for process in tree(pid):
        try:
            if role_of(process) == role:
                found.append(process)
        except psutil.Error:
            continue
    return found


async def until(condition: Callable[[], bool], what: str) -> float:
    """Seconds until it holds. Raises `TimeoutError`."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > DEADLINE_S:
            raise TimeoutError(f"not within {DEADLINE_S:g} s: {what}")
        await asyncio.sleep(0.02)
    return time.monotonic() - began


async def one_round(stage: Stage, kind: str, clients: int) -> Round:
    load = Load(f"http://127.0.0.1:{stage.port}", stage.key)
    if kind == "worker":
        load.path, load.body = "/v1/compress", COMPRESSION
    async with asyncio.TaskGroup() as group:
        for number in range(clients):
            group.create_task(load.client(keeps_connection=number % 2 == 0))
        await asyncio.sleep(WARM_UP_S)
        victim, before = stage.victim(kind), processes(stage.pid, ROLES[kind])
        spread = kept(processes(stage.pid, ROLES["ingress"]), stage.port)
        killed_at = time.monotonic()
        victim.kill()
        if kind == "redis":
            stage.redis.kill()
            stage.redis.start()
        # Until the system has closed its connections, a client that keeps one sends its next request there.
        await until(lambda: is_gone(victim), "the process is gone")
        gone_at = time.monotonic()

        def succeeded_since() -> list[Reply]:
            return [one for one in load.replies if one.began > killed_at and one.outcome == "200"]

        await until(lambda: bool(succeeded_since()), "a request that came later is answered")
        silent_s = min(one.ended for one in succeeded_since()) - killed_at
        await until(lambda: stage.is_replaced(kind, before, victim), "another process has its place")
        replaced_s = time.monotonic() - killed_at
        await asyncio.sleep(QUIET_S)
        load.stop = True
    return told(kind, load.replies, (killed_at, gone_at), silent_s, replaced_s, spread)


def is_gone(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def kept(ingresses: list[psutil.Process], port: int) -> list[int]:
    """Connections to the public port, by process."""
    found = []
    for process in ingresses:
        try:
            sockets = process.net_connections("tcp")
        except psutil.Error:
            sockets = []
        found.append(sum(1 for one in sockets if one.laddr.port == port and one.raddr))
    return found


def told(
    kind: str,
    replies: list[Reply],
    death: tuple[float, float],
    silent_s: float,
    replaced_s: float,
    spread: list[int],
) -> Round:
    killed_at, gone_at = death
    failed = [one for one in replies if one.outcome != "200"]
    carried = [one for one in replies if one.began <= gone_at and one.ended > killed_at]
    return Round(
        killed=kind,
        succeeded=len(replies) - len(failed),
        refused=sum(one.outcome == "refused" for one in failed),
        carried=len(carried),
        failed_carried=dict(Counter(one.outcome for one in failed if one.began <= gone_at)),
        failed_later=dict(Counter(one.outcome for one in failed if one.began > gone_at)),
        silent_s=silent_s,
        replaced_s=replaced_s,
        kept_connections=spread,
    )


def report(rounds: list[Round], clients: int) -> str:
    lines = [
        f"{clients} clients; medians of {len(rounds) // len({one.killed for one in rounds})} rounds, counts added up.",
        "",
        "| killed | succeeded | refused | under way | of these failed | of later ones failed "
        "| to the next answer s | replaced after s | kept connections by ingress |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for kind in dict.fromkeys(one.killed for one in rounds):
        these = [one for one in rounds if one.killed == kind]
        early = sum((Counter(one.failed_carried) for one in these), Counter())
        late = sum((Counter(one.failed_later) for one in these), Counter())
        lines.append(
            f"| {ROLES[kind]} | {sum(one.succeeded for one in these)} | {sum(one.refused for one in these)} "
            f"| {sum(one.carried for one in these)} | {dict(early) or 0} | {dict(late) or 0} "
            f"| {statistics.median(one.silent_s for one in these):.2f} "
            f"| {statistics.median(one.replaced_s for one in these):.1f} "
            f"| {', '.join(str(one.kept_connections) for one in these)} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", type=Path, default=Path("configs/tiny.yaml"))
    parser.add_argument("--kill", choices=ROLES, action="append", help="default: each of them")
    parser.add_argument("--rounds", type=count, default=3)
    parser.add_argument("--clients", type=count, default=16)
    parser.add_argument(
        "--fake-engine", action="store_true", help="in the place of vLLM, for kinds that are no engine's"
    )
    options = parser.parse_args()
    kinds = list(dict.fromkeys(options.kill or ROLES))
    rounds: list[Round] = []
    for these in ([one for one in kinds if one not in OUTSIDE], [one for one in kinds if one in OUTSIDE]):
        if these:
            rounds += asyncio.run(all_rounds(options, these))
    print(report(rounds, options.clients))


async def all_rounds(options: argparse.Namespace, kinds: list[str]) -> list[Round]:
    """On one server."""
    rounds = []
    with ExitStack() as until_end:
        server, redis, database = prepared(options, kinds[0] in OUTSIDE, until_end)
        await server.start()
        stage = await asyncio.to_thread(staged, server, redis, database)
        for kind in kinds:
            for _ in range(options.rounds):
                await until(lambda: all_run(server.metrics_url), "every replica takes requests")
                rounds.append(await one_round(stage, kind, options.clients))
                print(json.dumps(asdict(rounds[-1])), file=sys.stderr)
    return rounds


def all_run(metrics_url: str) -> bool:
    """What a round before has killed may still be starting."""
    with urlopen(metrics_url, timeout=DEADLINE_S) as reply:
        text = reply.read().decode()
    return total(text, "pith_replicas_running") == total(text, "pith_replicas_wanted") > 0


def prepared(
    options: argparse.Namespace, is_outside: bool, until_end: ExitStack
) -> tuple[Server, Redis, str]:
    """A server to start; `is_outside`: with a Redis and a PostgreSQL, whose address comes last."""
    folder = Path(until_end.enter_context(tempfile.TemporaryDirectory(prefix="pith-recovery-")))
    redis, database = Redis(folder), ""
    document = yaml.safe_load(options.config.read_text(encoding="utf-8"))
    if options.fake_engine:
        document["models"][0] |= {"engine": {"kind": "fake"}, "capabilities": {}}
    if is_outside:
        redis.start()
        until_end.callback(redis.kill)
        database = until_end.enter_context(private_postgres(fsync=True))
        document["billing"] |= {"database_url": f"{database}/postgres", "rate_limit_storage": redis.url}
    own = folder / "recovery.yaml"
    own.write_text(yaml.safe_dump(document), encoding="utf-8")
    server = pith_server(own, folder, MODEL)
    until_end.callback(server.stop)
    return server, redis, database


def staged(server: Server, redis: Redis, database: str) -> Stage:
    """It answers; now with a key that no limit stops."""
    key = new_key(server.folder, "recovery")
    run_pith(server.folder, "project", "set", "recovery/main", *LIMITS)
    assert server.process is not None
    ports = [int(url.rpartition(":")[2] or 0) for url in (server.url, database)]
    return Stage(server.process.pid, ports[0], key, redis, ports[1])


if __name__ == "__main__":
    main()
