"""Starts, describes and stops a real `pith serve`, for the tests of this folder."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import yaml

ROOT = Path(__file__).resolve().parents[2]
START_S = 300
STOP_S = 10
ON_DEMAND_IDLE_S = 20
# Short enough to be seen at work: an engine takes longer to start.
START_WAIT_S = 8
PROGRESS_S = 8


def wait_for(condition: Callable[[], Any], *, timeout_s: float, what: str, every_s: float = 0.05) -> Any:
    """Poll until `condition` returns something true, and return it; fail with `what` at the deadline."""
    deadline = time.monotonic() + timeout_s
    tick = threading.Event()
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {what}")
        tick.wait(every_s)


@dataclass
class Server:
    """A running `pith serve` and how to talk to it."""

    pid: int
    process: subprocess.Popen[str] | None
    config: Path
    state_dir: Path
    port: int
    key: str
    lines: list[str] = field(default_factory=list)
    reader: threading.Thread | None = None
    # What was in the system's temporary folder before the start.
    temporary: frozenset[str] = frozenset()

    @property
    def run_folder(self) -> Path:
        """Its sockets and temporary files."""
        return Path((self.state_dir / f"run/{self.port}.lock").read_text())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def ops_port(self) -> int:
        return int(yaml.safe_load(self.config.read_text())["ops"]["port"])

    @property
    def auth(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}

    def client(self, *, key: str | None = None, timeout_s: float = 60) -> httpx.Client:
        headers = {"Authorization": f"Bearer {key or self.key}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=timeout_s)

    def pith(self, *arguments: str) -> Any:
        """Run `pith ARGUMENTS --json` on this server's ledger and return what it printed."""
        command = [*PITH, *arguments, "--config", str(self.config), "--json"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def new_key(self, workspace: str, *, project: tuple[str, ...] = (), **workspace_options: str) -> str:
        """A key of a new workspace and project. Options: `limit_usd="0.01"`; project: ("--max-in-flight", "1")."""
        options = [
            part
            for name, value in workspace_options.items()
            for part in (f"--{name.replace('_', '-')}", value)
        ]
        self.pith("workspace", "create", workspace, *options)
        self.pith("project", "create", workspace, "main", *project)
        return str(self.pith("key", "create", f"{workspace}/main")["key"])

    def engine_processes(self) -> list[psutil.Process]:
        """The vLLM engine cores that this server started."""
        children = psutil.Process(self.pid).children(recursive=True)
        return [child for child in children if "EngineCore" in command_line(child)]


PITH = (sys.executable, "-c", "from serve.cli.main import main; main()")


def command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def write_config(state_dir: Path, **server: Any) -> Path:
    """The embedded profile with its state in `state_dir`, and models on demand that go idle within seconds."""
    config = yaml.safe_load((ROOT / "configs/embedded.yaml").read_text())
    config["state_dir"] = str(state_dir)
    config["billing"]["database_url"] = f"sqlite:///{state_dir}/pith.db"
    config["billing"]["spool_path"] = str(state_dir / "spool.db")
    config["demo"]["key_path"] = str(state_dir / "demo-key")
    config["ops"] = {"port": free_port()}
    config["server"] |= {"start_wait_s": START_WAIT_S, "progress_s": PROGRESS_S, **server}
    for model in config["models"][1:]:
        model["replicas"] = {**model["replicas"], "idle_s": ON_DEMAND_IDLE_S}
    path = state_dir / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def start_server(config: Path, state_dir: Path) -> Server:
    """Start `pith serve` and wait until it says that it is ready."""
    port = free_port()
    temporary = frozenset(os.listdir("/tmp"))
    process = subprocess.Popen(
        [*PITH, "serve", "--config", str(config), "--port", str(port)],
        cwd=ROOT,
        # What torch compiles is kept from one test's server to the next one's.
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "TORCHINDUCTOR_CACHE_DIR": str(ROOT / "var/compiled"),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    server = Server(process.pid, process, config, state_dir, port, key="", temporary=temporary)

    def is_up() -> bool:
        assert process.poll() is None, "".join(server.lines)
        return any("ready: http" in line for line in server.lines)

    def reader() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            server.lines.append(line)

    server.reader = threading.Thread(target=reader, daemon=True)
    server.reader.start()
    try:
        wait_for(is_up, timeout_s=START_S, what="the server is ready", every_s=0.2)
    except AssertionError as error:
        stop_server(server)
        raise AssertionError("".join(server.lines)) from error
    server.key = (state_dir / "demo-key").read_text().strip()
    return server


def stop_server(server: Server) -> float:
    """Ctrl-C; returns how many seconds the stop took. Kills what is left after twice the promised time."""
    assert server.process is not None, "this server was started by somebody else"
    began = time.monotonic()
    if server.process.poll() is None:
        server.process.send_signal(signal.SIGINT)
        try:
            server.process.wait(2 * STOP_S)
        except subprocess.TimeoutExpired:
            for child in psutil.Process(server.pid).children(recursive=True):
                child.kill()
            server.process.kill()
            server.process.wait(STOP_S)
    took_s = time.monotonic() - began
    if server.reader is not None and server.process.stdout is not None:
        server.reader.join(STOP_S)
        server.process.stdout.close()
    return took_s


def running_server(pid: int) -> Server:
    """A `pith serve --config FILE --port PORT` that a developer keeps running, to write tests against."""
    command = psutil.Process(pid).cmdline()
    config = Path(command[command.index("--config") + 1])
    state_dir = Path(yaml.safe_load(config.read_text())["state_dir"])
    port = int(command[command.index("--port") + 1])
    return Server(pid, None, config, state_dir, port, key=(state_dir / "demo-key").read_text().strip())
