"""Starts the whole server on this machine and stops it again: Ray, one application a model, the ingress."""

import logging
import os
import re
import secrets
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from models.engine_kinds import ENGINE_KINDS
from serve.cluster.descendants import (
    adopt_orphans,
    children_of_this_process,
    reap_orphans,
    started_since,
    stop_descendants,
)
from serve.cluster.progress import Progress
from serve.cluster.ray_insides.loopback import SETUP_HOOK, PortsOpen, refuse_open_ports
from serve.cluster.ray_insides.ray_serve import (
    RAY_ENVIRONMENT,
    InsidesChanged,
    deploy,
    own_addresses,
    stay_on_this_machine,
)
from serve.cluster.replicas.applications import INGRESS_APP, SETTLE_S, compressor_app, model_app
from serve.config.chat_models import ModelSettings
from serve.config.settings import Settings
from serve.processes.coordinator import Coordinator, open_coordinator
from serve.processes.run_folder import RAY_FOLDER, TEMPORARY_FOLDER, FolderInUse, run_folder

POLL_S = 0.25
REAP_EVERY_S = 2.0
# Beyond the drain time and what the ingress gets to settle: for Ray to say so to the replicas.
SHUTDOWN_S = 2.0
FIRST_START_CHECKPOINTS = "embedded:"

# How a line begins that names an exception; those of its traceback are indented.
EXCEPTION = re.compile(r"(\w+\.[\w.]+|\w*(Error|Exception)): ")
VLLM_ENVIRONMENT = {"VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR"}


class StartError(Exception):
    """The server cannot start; the message says why in one line."""


class Stopped(Exception):
    """The operator asked the server to stop."""


def run_server(settings: Settings, *, announce: Callable[[], None], progress: Progress) -> None:
    """Start, announce when ready, and serve until a signal comes; then stop everything that was started.

    Raises `StartError` when a model or the ingress cannot start.
    """
    adopt_orphans()
    stop_on_signals()
    after = ExitStack()
    coordinator: Coordinator | None = None
    try:
        take_in_ended = open_ops_port(settings, after)
        folder = after.enter_context(own_folder(settings))
        coordinator = open_own_coordinator(settings, folder, after)
        start(settings, progress, folder, has_coordinator=coordinator is not None)
        announce()
        started, tick = children_of_this_process(), threading.Event()
        while not tick.wait(REAP_EVERY_S):
            reap_orphans(started)
            take_in_ended()
    except (InsidesChanged, PortsOpen) as error:
        raise StartError(str(error)) from error
    except Stopped:
        progress.say("stopping …")
    finally:
        # First: while the last requests end, new ones are refused instead of waiting in vain.
        if coordinator is not None:
            coordinator.stop_listening()
        stop(settings.server.drain_s + SETTLE_S + SHUTDOWN_S)
        after.close()
        progress.say("stopped")


@contextmanager
def own_folder(settings: Settings) -> Iterator[Path]:
    """The folder of this run. Raises `StartError`."""
    try:
        with run_folder(settings.state_dir, settings.server.port) as folder:
            yield folder
    except FolderInUse as error:
        raise StartError(str(error)) from error


def open_own_coordinator(settings: Settings, folder: Path, until: ExitStack) -> Coordinator | None:
    """Take the port, for the HTTP processes of this machine. A cluster's are where Ray puts them, and each listens by
    itself. Raises `StartError`."""
    server = settings.server
    if settings.ray.address:
        return None
    try:
        return until.enter_context(open_coordinator(server.host, server.port, folder))
    except OSError as error:
        raise StartError(f"cannot listen on {server.host}:{server.port}: {error}") from error


def open_ops_port(settings: Settings, until: ExitStack) -> Callable[[], None]:
    """Serve `/metrics`. Returns what is to be called now and then. Raises `StartError`."""
    from serve.metrics.ops_port import ops_port

    try:
        return until.enter_context(ops_port(settings))
    except OSError as error:
        raise StartError(
            f"cannot serve metrics on {settings.ops.host}:{settings.ops.port}: {error}"
        ) from error


def start(settings: Settings, progress: Progress, folder: Path, *, has_coordinator: bool) -> None:
    """Bring up Ray, the models that are kept up, and the ingress. Returns when the service can answer."""
    warn_of_fake_engines(settings, progress)
    checkpoints = {model.id: checkpoint_of(model, settings.state_dir, progress) for model in settings.models}
    os.environ.update(RAY_ENVIRONMENT | VLLM_ENVIRONMENT)
    os.environ.update(temporary_files(folder))
    # What torch compiles is kept for the next run.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(settings.state_dir / "compiled"))
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    progress.begin("loading Ray")
    import ray
    from ray import serve

    quiet_loggers()
    progress.begin("starting Ray")
    # A container's entry point may leave this process children that it did not start.
    before = children_of_this_process()
    ray.init(
        address=settings.ray.address or "local",
        **({} if settings.ray.address else local_cluster(settings, folder)),
        namespace="serve",
        log_to_driver=False,
        configure_logging=False,
    )
    # Ray has put its own handlers in place.
    stop_on_signals()
    serve.start(proxy_location="Disabled")
    if not settings.ray.address:
        refuse_open_ports(started_since(before))
    deploy_all(settings, progress, checkpoints, folder if has_coordinator else None)
    wanted = [INGRESS_APP, *(model_app(model.id) for model in settings.models if model.replicas.min)]
    wanted += [compressor_app(model.id) for model in settings.compression.models if model.replicas.min]
    wait_until_running(wanted, progress)


def deploy_all(
    settings: Settings, progress: Progress, checkpoints: Mapping[str, str], coordinator: Path | None
) -> None:
    """One application a model, one a compressor, and the ingress, all of which start at the same time."""
    from serve.cluster.deployments.chat import build_model
    from serve.cluster.deployments.compress import build_compressor
    from serve.cluster.deployments.ingress import build_ingress

    for model in settings.models:
        later = "" if model.replicas.min else " (starts on its first request)"
        progress.begin(f"deploying {model.id}{later}")
        application = build_model(
            model,
            checkpoints[model.id],
            coalesce_s=settings.server.coalesce_ms / 1000,
            longest_s=settings.server.longest_request_s,
            on_loopback=not settings.ray.address,
        )
        deploy(application, model_app(model.id))
    for compressor in settings.compression.models:
        progress.begin(f"deploying {compressor.id}")
        deploy(build_compressor(compressor, settings), compressor_app(compressor.id))
    deploy(build_ingress(settings, coordinator), INGRESS_APP)


def warn_of_fake_engines(settings: Settings, progress: Progress) -> None:
    for model in settings.models:
        if not ENGINE_KINDS[model.engine.kind].computes:
            fake = "is a fake engine, for tests: every reply is the same made-up text"
            progress.say(f"WARNING: {model.id} {fake}")


def temporary_files(folder: Path) -> dict[str, str]:
    """Where processes that inherit this environment leave sockets and files."""
    for name in (RAY_FOLDER, TEMPORARY_FOLDER):
        (folder / name).mkdir(mode=0o700, exist_ok=True)
    temporary = str(folder / TEMPORARY_FOLDER)
    return {"TMPDIR": temporary, "VLLM_RPC_BASE_PATH": temporary}


def local_cluster(settings: Settings, folder: Path) -> dict[str, object]:
    """Ray's arguments for a cluster of this machine alone, on loopback and without a dashboard."""
    stay_on_this_machine()
    return {
        "num_cpus": settings.ray.logical_cpus,
        "object_store_memory": settings.ray.object_store_mb * 10**6,
        "include_dashboard": False,
        **own_addresses(folder / RAY_FOLDER),
        "runtime_env": {"worker_process_setup_hook": SETUP_HOOK},
    }


def wait_until_running(applications: list[str], progress: Progress) -> None:
    """Poll Ray until every application runs. Raises `StartError` for one that cannot."""
    from ray import serve
    from ray.serve.schema import ApplicationStatus

    tick = threading.Event()
    while True:
        states = serve.status().applications
        for name in applications:
            if name in states and states[name].status in (
                ApplicationStatus.DEPLOY_FAILED,
                ApplicationStatus.UNHEALTHY,
            ):
                raise StartError(f"{name} cannot start: {reason_of(states[name])}")
        waiting = [name for name in applications if name not in states or states[name].status != "RUNNING"]
        if not waiting:
            return
        progress.begin("loading " + ", ".join(name.partition(":")[2] or name for name in waiting))
        tick.wait(POLL_S)


def reason_of(application: Any) -> str:
    """What went wrong, on one line: of a deployment's traceback the exception that ends it."""
    said = [application.message.splitlines()]
    for deployment in application.deployments.values():
        lines = deployment.message.splitlines()
        ends = [number for number, line in enumerate(lines) if EXCEPTION.match(line)]
        said.append(lines[ends[-1] :] if ends else lines)
    return " ".join(" ".join(each.split()) for lines in said for each in lines)[:2000]


def checkpoint_of(model: ModelSettings, state_dir: Path, progress: Progress) -> str:
    """The hub name or the folder that the engine loads. Raises `StartError` for a folder that is not there."""
    if model.checkpoint.startswith(FIRST_START_CHECKPOINTS):
        from models.embedded import ensure_checkpoints

        progress.begin("laying out the embedded checkpoints")
        name = model.checkpoint.removeprefix(FIRST_START_CHECKPOINTS)
        folders = ensure_checkpoints(state_dir / "checkpoints")
        if name not in folders:
            raise StartError(
                f"{model.id}: no embedded checkpoint is named {name!r}; there are {', '.join(folders)}"
            )
        return str(folders[name].resolve())
    if model.checkpoint.startswith((".", "/", "~")):
        folder = Path(model.checkpoint).expanduser().resolve()
        if not (folder / "config.json").is_file():
            raise StartError(f"{model.id}: {folder} is not a checkpoint folder (it has no config.json)")
        return str(folder)
    return model.checkpoint


def stop_on_signals() -> None:
    """Turn the first SIGINT or SIGTERM into `Stopped` in the main thread; later ones are ignored while stopping."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)
        raise Stopped

    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, on_signal)


def stop(within_s: float) -> None:
    """Stop everything that `start` started: running requests end and are settled first, then the rest goes."""
    ray = sys.modules.get("ray")
    if ray is not None:
        worker = threading.Thread(target=_shut_down_ray, daemon=True)
        worker.start()
        worker.join(within_s)
    stop_descendants()


def _shut_down_ray() -> None:
    import ray
    from ray import serve

    try:
        if ray.is_initialized():
            serve.delete(INGRESS_APP)
            ray.shutdown()
    except Exception:
        logging.getLogger("pith").debug("Ray did not shut down cleanly", exc_info=True)


def quiet_loggers() -> None:
    """Keep the libraries' narration off the operator's screen; their files have it."""
    for name in ("ray", "ray.serve", "ray.data", "ray.tune", "ray.rllib", "ray.train", "vllm"):
        logging.getLogger(name).setLevel(logging.ERROR)
