"""The real HTTP server on a canned engine, in a process of its own: what is left is what the ingress itself costs.

It is started by path, so that the same harness serves two source trees. It prints its port and a key, then serves until
SIGTERM. With --two-processes the engine is in a second process, behind the port that a replica has.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncGenerator
from dataclasses import asdict
from pathlib import Path
from typing import Any

MODEL = "canned"
PRICE = {"input_usd_per_mtok": "0.1", "output_usd_per_mtok": "0.4", "minimum_request_usd": "0.00001"}


def _settings(folder: Path) -> Any:
    from serve.config.settings import Settings

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    model = {"name": "Canned", "blurb": "A fake.", "checkpoint": "embedded:none", "context_length": 4096}
    ids = (MODEL, "second", "third", "fourth")
    return Settings.model_validate(
        {
            "state_dir": str(folder / "state"),
            "server": {"port": port},
            "billing": {
                "database_url": f"sqlite:///{folder / 'ledger.db'}",
                "spool_path": str(folder / "spool.db"),
            },
            "demo": {"enabled": False},
            "models": [{**model, "id": model_id, "price": PRICE} for model_id in ids],
        }
    )


async def _key(settings: Any) -> str:
    from billing.accounts.accounts import Accounts
    from billing.store.database import open_database
    from billing.usage import now
    from serve.catalog.offered import catalog_of
    from serve.money.ledger_setup import prepare_ledger, read_pepper

    await prepare_ledger(settings, catalog_of(settings), now=now())
    database = open_database(settings.billing.database_url)
    try:
        accounts = Accounts(database, pepper=read_pepper(settings.state_dir))
        workspace = await accounts.create_workspace("load", spend_limit_nano_usd=10**15, now=now())
        project = await accounts.create_project(workspace.id, "main", now=now())
        _, key = await accounts.keys.create(project.id, "key", now=now())
        return key
    finally:
        await database.close()


def _prompt_bound() -> Any:
    from models.engine import PromptBound

    return PromptBound(per_byte=1, per_message=64, per_part=0, fixed=32)


class CannedEngine:
    """A fake that has its replies ready and gives the event loop a turn for each chunk, as a second process does."""

    def __init__(self, tokens_per_chunk: int) -> None:
        self._per_chunk = tokens_per_chunk
        head = {"id": "chatcmpl-canned", "created": 1_700_000_000, "model": MODEL}
        choice = {"index": 0, "delta": {"content": " owl"}, "logprobs": None, "finish_reason": None}
        chunk = {**head, "object": "chat.completion.chunk", "choices": [choice]}
        self._event = b"data: " + json.dumps(chunk, separators=(",", ":")).encode() + b"\n\n"
        self._head = head
        self._replies: dict[int, bytes] = {}

    def _reply(self, tokens: int) -> bytes:
        if tokens not in self._replies:
            message = {"role": "assistant", "content": " owl" * tokens, "refusal": None}
            done = {"index": 0, "message": message, "logprobs": None, "finish_reason": "length"}
            reply = {**self._head, "object": "chat.completion", "choices": [done]}
            self._replies[tokens] = json.dumps(reply).encode()
        return self._replies[tokens]

    async def ready(self) -> bool:
        return True

    def prompt_bound(self) -> Any:
        return _prompt_bound()

    async def count_tokens(self, request: Any, *, beyond_context: bool = False) -> int:
        return 12

    async def generate(self, request: Any) -> AsyncGenerator[Any, None]:
        from models.engine import EngineChunk, TokenUsage

        yield EngineChunk(b"", TokenUsage(12, 0), finished=False)
        if not request.stream:
            await asyncio.sleep(0)
            reply = self._reply(request.max_tokens)
            yield EngineChunk(reply, TokenUsage(12, request.max_tokens), finished=True)
            return
        for said in range(0, request.max_tokens, self._per_chunk):
            more = min(self._per_chunk, request.max_tokens - said)
            await asyncio.sleep(0)
            yield EngineChunk(self._event * more, TokenUsage(12, said + more), finished=False)
        yield EngineChunk(b"", TokenUsage(12, request.max_tokens), finished=True)


class RemoteEngine:
    """The canned engine in a process of its own, reached as a replica is."""

    def __init__(self, tokens_per_chunk: int) -> None:
        self._command = [sys.executable, __file__, "--replica", "--tokens-per-chunk", str(tokens_per_chunk)]

    async def start(self) -> None:
        from serve.cluster.replicas.address import Address
        from serve.cluster.replicas.pool import ReplicaClient

        self._process = await asyncio.create_subprocess_exec(*self._command, stdout=asyncio.subprocess.PIPE)
        assert self._process.stdout is not None
        self._address = Address(**json.loads(await self._process.stdout.readline()))
        self._client = ReplicaClient()

    async def stop(self) -> None:
        await self._client.close()
        self._process.terminate()
        await self._process.wait()

    async def ready(self) -> bool:
        return True

    def prompt_bound(self) -> Any:
        return _prompt_bound()

    async def count_tokens(self, request: Any, *, beyond_context: bool = False) -> int:
        return 12

    def generate(self, request: Any) -> AsyncGenerator[Any, None]:
        return self._client.generate(self._address, request)


async def _serve_replica(tokens_per_chunk: int) -> None:
    from serve.cluster.replicas.port import ReplicaPort

    told_to_stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told_to_stop.set)
    port = ReplicaPort(CannedEngine(tokens_per_chunk).generate)
    address = await port.open("127.0.0.1")
    print(json.dumps(asdict(address)), flush=True)
    await told_to_stop.wait()
    await port.close()


async def _serve(settings: Any, tokens_per_chunk: int, two_processes: bool) -> None:
    from billing.store.database import open_database
    from serve.app import start_service
    from serve.metrics.counts import open_counts

    remote = RemoteEngine(tokens_per_chunk) if two_processes else None
    if remote:
        await remote.start()
    told_to_stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told_to_stop.set)
    key = await _key(settings)
    service = start_service(
        settings,
        engines={MODEL: remote or CannedEngine(tokens_per_chunk)},
        compressors={},
        retrievers={},
        database=open_database(settings.billing.database_url),
        # As in a replica: in files.
        counts=open_counts(settings),
    )
    while not service.server.started:
        service.check()
        await asyncio.sleep(0.002)
    print(json.dumps({"port": settings.server.port, "key": key}), flush=True)
    await told_to_stop.wait()
    await service.stop()
    if remote:
        await remote.stop()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens-per-chunk", type=int, default=1)
    parser.add_argument("--two-processes", action="store_true")
    parser.add_argument("--replica", action="store_true", help="the second process of --two-processes")
    given = parser.parse_args()
    import uvloop

    if given.replica:
        uvloop.run(_serve_replica(given.tokens_per_chunk))
        return
    with tempfile.TemporaryDirectory(prefix="pith-cost-") as name:
        settings = _settings(Path(name))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(settings, given.tokens_per_chunk, given.two_processes))


if __name__ == "__main__":
    main()
