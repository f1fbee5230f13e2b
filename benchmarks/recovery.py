"""Failed requests and silence while a process of `pith serve` that was killed under load (SIGKILL) is replaced.

    python -m benchmarks.recovery                 # starts a server of its own and kills an ingress, a core, a replica
    python -m benchmarks.recovery --kill ingress --rounds 5

Clients send chat completions of 8 tokens in a closed loop: half over kept connections, half over a new one each. A
request that came after the process was gone is counted apart from those that it may have carried.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import aiohttp
import psutil

from benchmarks.load.arguments import count
from benchmarks.load.processes import role_of, tree
from benchmarks.load.server import free_port
from benchmarks.startup import wait_until_ready

ROLES = {"ingress": "ingress replica", "core": "vLLM engine core", "replica": "engine replica"}
BODY = {"messages": [{"role": "user", "content": "Tell me about the river."}], "max_tokens": 8}
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
            async with session.post(f"{self.url}/v1/chat/completions", json=BODY) as reply:
                await reply.read()
                return str(reply.status)
        except aiohttp.ClientConnectorError:
            return "refused"
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return type(error).__name__


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


async def one_round(pid: int, port: int, key: str, kind: str, clients: int) -> Round:
    load = Load(f"http://127.0.0.1:{port}", key)
    async with asyncio.TaskGroup() as group:
        for number in range(clients):
            group.create_task(load.client(keeps_connection=number % 2 == 0))
        await asyncio.sleep(WARM_UP_S)
        victims = processes(pid, ROLES[kind])
        spread = kept(processes(pid, ROLES["ingress"]), port)
        killed_at = time.monotonic()
        victims[0].kill()
        # Until the system has closed its connections, a client that keeps one sends its next request there.
        await until(lambda: is_gone(victims[0]), "the process is gone")
        gone_at = time.monotonic()

        def succeeded_since() -> list[Reply]:
            return [one for one in load.replies if one.began > killed_at and one.outcome == "200"]

        await until(lambda: bool(succeeded_since()), "a request that came later is answered")
        silent_s = min(one.ended for one in succeeded_since()) - killed_at
        await until(lambda: is_replaced(pid, kind, victims, port), "another process has its place")
        replaced_s = time.monotonic() - killed_at
        await asyncio.sleep(QUIET_S)
        load.stop = True
    return told(kind, load.replies, (killed_at, gone_at), silent_s, replaced_s, spread)


def is_gone(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def is_replaced(pid: int, kind: str, victims: list[psutil.Process], port: int) -> bool:
    """Whether as many as before are up; an ingress is, when it has the port and a connection."""
    found = [one for one in processes(pid, ROLES[kind]) if one != victims[0]]
    if kind == "ingress":
        found = [one for one, open_ in zip(found, kept(found, port), strict=True) if open_]
    return len(found) >= len(victims)


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
    options = parser.parse_args()
    port = free_port()
    command = [sys.executable, "-c", "from serve.cli.main import main; main()", "serve"]
    command += ["--config", str(options.config), "--port", str(port), "--ops-port", str(free_port())]
    rounds: list[Round] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            key = wait_until_ready(server, lambda line: None)
            for kind in options.kill or ROLES:
                for _ in range(options.rounds):
                    rounds.append(asyncio.run(one_round(server.pid, port, key, kind, options.clients)))
                    print(json.dumps(asdict(rounds[-1])), file=sys.stderr)
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(60)
    print(report(rounds, options.clients))


if __name__ == "__main__":
    main()
