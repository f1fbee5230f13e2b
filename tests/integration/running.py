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
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import psutil
import yaml
from typer.testing import CliRunner

if TYPE_CHECKING:
    from tests.serve.tracing.collector import Collector

ROOT = Path(__file__).resolve().parents[2]
# A machine ten times slower than a developer's may do other work too.
START_S = 600
STOP_S = 60
PITH_S = 120
WAIT_S = 120
# Of the model whose idling is looked at; the others stay for the tests that come.
IDLES, IDLE_S = "pith-small", 6
# Short enough to be seen at work: an engine takes longer to start.
START_WAIT_S = 8
# An engine that was killed is back in less, on a machine that is busy too.
SURVIVAL_WAIT_S = 120
PROGRESS_S = 20
# A page of this origin may call the server from a browser.
PAGE_ORIGIN = "http://app.test"


def wait_for(
    condition: Callable[[], Any], *, what: str, timeout_s: float = WAIT_S, every_s: float = 0.05
) -> Any:
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
    # Of the session's server: gets its traces.
    collector: Collector | None = None

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

    def client(self, *, key: str | None = None, timeout_s: float = WAIT_S) -> httpx.Client:
        headers = {"Authorization": f"Bearer {key or self.key}"}
        hooks = {"response": [check_openai_types]}
        return httpx.Client(base_url=self.url, headers=headers, timeout=timeout_s, event_hooks=hooks)

    def pith(self, *arguments: str, within_s: float = PITH_S) -> Any:
        """Run `pith ARGUMENTS --json` on this server's ledger and return what it printed. In this process, where it
        takes a twentieth of the time, and in a thread: a command has a loop of its own, as an asynchronous test has."""
        from serve.cli.main import app

        with ThreadPoolExecutor(1) as thread:
            words = [*arguments, "--config", str(self.config), "--json"]
            done = thread.submit(CliRunner().invoke, app, words).result(within_s)
        assert done.exit_code == 0, f"{done.output}{done.exception!r}"
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

    def engine_processes(self, model: str = "") -> list[psutil.Process]:
        """The vLLM engine cores that this server started, all or those of one model."""
        children = psutil.Process(self.pid).children(recursive=True)
        cores = [child for child in children if "EngineCore" in command_line(child)]
        return [core for core in cores if model in command_line(replica_of(core))]


def check_openai_types(response: httpx.Response) -> None:
    """Every whole reply of OpenAI's dialect has the types that its clients are promised."""
    content_type = response.headers.get("content-type", "")
    if response.url.path.startswith("/openai/v1/") and content_type == "application/json":
        from tests.openai_types import check_reply

        body = response.read()
        check_reply(response.request.method, response.url.path, response.status_code, content_type, body)


def replica_of(core: psutil.Process) -> psutil.Process:
    """Between the two stands the process that cores are forked from, where they are."""
    return next((one for one in core.parents() if "ServeReplica" in command_line(one)), core)


PITH = (sys.executable, "-c", "from serve.cli.main import main; main()")


def command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def adapter_entry(folder: Path) -> dict[str, Any]:
    """An adapter of the default model, dearer than that one."""
    return {
        "id": "pith-mini-loud",
        "name": "Pith Mini, louder",
        "blurb": "An adapter of Pith Mini, for tests.",
        "adapter": {"of": "pith-mini", "source": str(folder)},
        "price": {
            "input_usd_per_mtok": "1.50",
            "output_usd_per_mtok": "6.00",
            "minimum_request_usd": "0.0001",
        },
    }


def write_config(
    state_dir: Path, also: Mapping[str, Any] | None = None, *, adapter: Path | None = None, **server: Any
) -> Path:
    """The profile of tiny models with its state in `state_dir`, and one model on demand that goes idle within seconds.
    `adapter` is the folder of one that the default model's engine serves."""
    config = yaml.safe_load((ROOT / "configs/tiny.yaml").read_text())
    config["state_dir"] = str(state_dir)
    config["billing"]["database_url"] = f"sqlite:///{state_dir}/pith.db"
    config["billing"]["spool_path"] = str(state_dir / "spool.db")
    config["demo"]["key_path"] = str(state_dir / "demo-key")
    config["ops"] = {"port": free_port()}
    config["metrics"] = {"tenants": {"top": 5}}
    config["webhooks"] = {"allowed_networks": ["127.0.0.0/8"]}
    times = {"start_wait_s": START_WAIT_S, "survival_wait_s": SURVIVAL_WAIT_S, "progress_s": PROGRESS_S}
    config["server"] |= {"cors_origins": [PAGE_ORIGIN], **times, **server}
    # Tests fill it, and a prompt of 16,384 tokens takes a busy machine longer than `PROGRESS_S`.
    config["models"][0]["context_length"] = 4096
    (idles,) = [model for model in config["models"] if model["id"] == IDLES]
    idles["replicas"] = {**idles["replicas"], "idle_s": IDLE_S}
    if adapter is not None:
        config["models"].insert(4, adapter_entry(adapter))
        # For one that comes while it runs.
        config["models"][0]["engine"] = {**config["models"][0]["engine"], "max_loras": 2}
    config |= also or {}
    path = state_dir / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def start_server(
    config: Path,
    state_dir: Path,
    *options: str,
    environment: Mapping[str, str] = os.environ,
    code: Path = ROOT,
    installed: tuple[Path, Path] | None = None,
    within_s: float = START_S,
) -> Server:
    """Start `pith serve` of the checkout `code` and wait until it says that it is ready. `installed`: in place of a
    checkout the program `pith` of an environment, and the folder in which it is started. Folders that `environment` has
    in `PYTHONPATH` come after the checkout."""
    port = free_port()
    temporary = frozenset(os.listdir("/tmp"))
    program: Sequence[str] = PITH if installed is None else [str(installed[0])]
    also = environment.get("PYTHONPATH", "")
    path = {"PYTHONPATH": os.pathsep.join([str(code), also]).rstrip(os.pathsep)} if installed is None else {}
    folder = code if installed is None else installed[1]
    process = subprocess.Popen(
        [*program, "serve", "--config", str(config), "--port", str(port), *options],
        cwd=folder,
        # What torch compiles is kept from one test's server to the next one's.
        env={
            **environment,
            **path,
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
        wait_for(is_up, timeout_s=within_s, what="the server is ready", every_s=0.2)
    except BaseException as error:
        stop_server(server)
        if isinstance(error, AssertionError):
            raise AssertionError("".join(server.lines)) from error
        raise
    server.key = (state_dir / "demo-key").read_text().strip()
    return server


def stop_server(server: Server) -> None:
    """Ctrl-C. Kills what does not end by itself, which does not return 0 then."""
    assert server.process is not None, "this server was started by somebody else"
    if server.process.poll() is None:
        server.process.send_signal(signal.SIGINT)
        try:
            server.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            for child in psutil.Process(server.pid).children(recursive=True):
                child.kill()
            server.process.kill()
            server.process.wait(STOP_S)
    if server.reader is not None and server.process.stdout is not None:
        server.reader.join(STOP_S)
        server.process.stdout.close()


def running_server(pid: int) -> Server:
    """A `pith serve --config FILE --port PORT` that a developer keeps running, to write tests against."""
    command = psutil.Process(pid).cmdline()
    config = Path(command[command.index("--config") + 1])
    state_dir = Path(yaml.safe_load(config.read_text())["state_dir"])
    port = int(command[command.index("--port") + 1])
    return Server(pid, None, config, state_dir, port, key=(state_dir / "demo-key").read_text().strip())
