"""The sides that are compared, each as the commands that start it; all on the same checkpoint and engine arguments."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import orjson
import psutil

from benchmarks.load.server import POLL_S, ROOT, CannotRun, Server, free_port, new_key, pith_server
from benchmarks.overhead import litellm
from benchmarks.overhead.engine import Engine, with_copies

GIB = 2**30
RESUME_S = 60.0
BARE = "bare vLLM"
# What Ray Serve's own documents name for throughput.
RAY_FAST = {"RAY_SERVE_ENABLE_HA_PROXY": "1", "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1"}
# Fixed ports by default: two sides, or a server that runs already, would collide.
HAPROXY_PORTS = (
    "RAY_SERVE_HAPROXY_METRICS_PORT",
    "RAY_SERVE_HAPROXY_STATS_PORT",
    "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT",
    "RAY_SERVE_FALLBACK_PROXY_GRPC_PORT",
)
# One model an application, and no ingress: nothing of a gateway can stand in its way.
RAY_DIRECT = {**RAY_FAST, "RAY_SERVE_LLM_ENABLE_DIRECT_STREAMING": "1"}


@dataclass(frozen=True, slots=True)
class Side:
    """Servers, the last of which is asked; the others are what it stands on."""

    name: str
    servers: tuple[Server, ...]
    needs_gib: float

    @property
    def front(self) -> Server:
        return self.servers[-1]

    def processes(self) -> list[psutil.Process]:
        return [process for server in self.servers for process in server.processes()]

    async def bring(self) -> None:
        """Start it, or let it go on where it was paused. Raises `CannotRun`.

        After a pause Ray replaces proxies that, by the clock, have not answered for long.
        """
        for server in self.servers:
            if server.process is None:
                require_memory(self.name, self.needs_gib)
                await server.start()
            else:
                server.resume()
        deadline = time.monotonic() + RESUME_S
        while not await self.front.answers():
            if time.monotonic() > deadline:
                raise CannotRun(f"{self.name} does not answer after its pause: {self.front.last_lines()}")
            await asyncio.sleep(POLL_S)

    def park(self, *, stop: bool) -> None:
        for server in reversed(self.servers):
            server.stop() if stop else server.pause()


def require_memory(name: str, gib: float) -> None:
    """Raises `CannotRun`: a machine that swaps, or kills a process, measures nothing."""
    free = psutil.virtual_memory().available / GIB
    if free < gib:
        raise CannotRun(f"{name} needs about {gib:g} GiB of memory, and {free:.1f} GiB are free")


@dataclass(frozen=True, slots=True)
class Workshop:
    """What sides are made of: the engine, pith's configuration, a folder for state and logs, another checkout."""

    engine: Engine
    config: Path
    folder: Path
    before: Path | None = None
    # How many of them are kept up; the first is asked.
    models: int = 1

    def server(
        self, name: str, command: list[str], port: int, environment: dict[str, str], key: Callable[[], str] = str
    ) -> Server:  # fmt: skip
        folder = self.folder / name.replace(" ", "-")
        folder.mkdir(parents=True, exist_ok=True)
        environment = {"PYTHONPATH": str(ROOT), **environment}
        url = f"http://127.0.0.1:{port}"
        return Server(name, self.engine.model, command, environment, folder, url, key)

    def bare(self) -> Server:
        port = free_port()
        command = [
            sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1", "--port", str(port),
            "--disable-uvicorn-access-log", *self.engine.words(),
        ]  # fmt: skip
        # Ray gives a process that reserves one CPU one thread, so the bare engine has one, too: more would be another
        # engine, and with a model of this size a slower one.
        alike = {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1", "OMP_NUM_THREADS": "1"}
        return self.server("bare-vllm", command, port, {**alike, **self.engine.environment})

    def pith(self) -> Server:
        folder = self.folder / "pith"
        folder.mkdir(parents=True, exist_ok=True)
        config = self.config
        if self.models > 1:
            config = folder / "with-copies.yaml"
            config.write_bytes(with_copies(self.config, self.models))
        return pith_server(config, folder, self.engine.model)

    def pith_compressing(self) -> Server:
        """With a key of a project whose chats are compressed by default."""
        folder = self.folder / "pith-compressing"
        folder.mkdir(parents=True, exist_ok=True)
        server = pith_server(self.config, folder, self.engine.model)
        demo_key = server.key

        @cache
        def key() -> str:
            return new_key(folder, "compressing", compression='{"target_ratio": 0.3}')

        server.key = lambda: demo_key() and key()
        return server

    def pith_before(self) -> Server:
        if self.before is None:
            raise CannotRun("--before does not name a checkout")
        folder = self.folder / "pith-before"
        folder.mkdir(parents=True, exist_ok=True)
        # Keys of a configuration change: that checkout has a file of its own in the same place, unless it is elsewhere.
        own = self.before / self.config
        return pith_server(own if own.exists() else self.config, folder, self.engine.model, self.before)

    def ray(self, name: str, flags: dict[str, str], *more: str) -> Server:
        port = free_port()
        command = [sys.executable, "-m", "benchmarks.overhead.ray_llm", "--port", str(port)]
        described = orjson.dumps(self.engine).decode()
        ports = {name: str(free_port()) for name in HAPROXY_PORTS} if RAY_FAST.keys() <= flags.keys() else {}
        environment = {"RAY_USAGE_STATS_ENABLED": "0", **flags, **ports}
        words = ["--engine", described, "--models", str(self.models), *more]
        return self.server(name, [*command, *words], port, environment)

    def litellm(self, upstream: Server, *, database_url: str) -> Server:
        name = "litellm" if database_url else "litellm-without-database"
        port = free_port()
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        config = litellm.write_config(folder, upstream.model, upstream.url, database_url)
        command = litellm.command(config, port)
        keys = litellm.Keys(f"http://127.0.0.1:{port}", virtual=bool(database_url))
        return self.server(name, command, port, litellm.environment(database_url), keys.key)


def build(name: str, workshop: Workshop, bare: Server, *, database_url: Callable[[], str]) -> Side:
    """A side by its name; `bare` is shared, since LiteLLM stands before the very engine it is compared with.

    Raises `CannotRun`.
    """
    match name:
        case "bare":
            return Side(BARE, (bare,), 4)
        case "pith":
            return Side("pith", (workshop.pith(),), 5.5)
        case "pith-compressing":
            return Side("pith, compression by default", (workshop.pith_compressing(),), 5.5)
        case "pith-before":
            return Side("pith before", (workshop.pith_before(),), 5.5)
        case "ray":
            return Side("Ray Serve LLM", (workshop.ray("ray", {}),), 5.5)
        case "ray-fast":
            return Side("Ray Serve LLM, HAProxy", (workshop.ray("ray-fast", RAY_FAST),), 5.5)
        case "ray-direct":
            return Side("Ray Serve LLM, direct streaming", (workshop.ray("ray-direct", RAY_DIRECT),), 5.5)
        case "litellm":
            litellm.require_database_client()
            return Side("LiteLLM", (bare, workshop.litellm(bare, database_url=database_url())), 5)
        case _:
            litellm.require_venv()
            return Side("LiteLLM without database", (bare, workshop.litellm(bare, database_url="")), 5)


NAMES = (
    "bare",
    "pith",
    "ray",
    "ray-fast",
    "ray-direct",
    "litellm",
    "litellm-nodb",
    "pith-compressing",
    "pith-before",
)
