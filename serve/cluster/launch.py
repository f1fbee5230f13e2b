"""Starts the whole server on this machine and stops it again: Ray, one application a model, the ingress."""

import logging
import os
import secrets
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import FrameType

from models.engine_kinds import ENGINE_LIMITS
from serve.cluster.joined import REST_S, JoinedCluster, quiet_loggers
from serve.cluster.lineup import (
    Lineup,
    Run,
    checkpoints_of,
    delete_ingress,
    first_lineup,
    require_any,
    within,
)
from serve.cluster.nodes import check_nodes, check_room
from serve.cluster.progress import Progress, StartError
from serve.cluster.ray_insides.ray_serve import (
    RAY_ENVIRONMENT,
    SETUP_HOOK,
    InsidesChanged,
    PortsOpen,
    away_from_here,
    own_addresses,
    refuse_open_ports,
    start_no_monitors,
    stay_on_this_machine,
)
from serve.cluster.reloader import Reloader, reload_on_sighup
from serve.cluster.replicas.applications import SETTLE_S, is_ingress
from serve.config.settings import Settings
from serve.logs.outlet import outlet_of_process, relay, take_others
from serve.metrics.counts import count_dropped_lines, open_counts
from serve.operator.adapters import ServedAdapters
from serve.processes.control import control_socket
from serve.processes.coordinator import Coordinator, open_coordinator
from serve.processes.process_setup import (
    adopt_orphans,
    children_of_this_process,
    reap_orphans,
    started_since,
    stop_descendants,
)
from serve.processes.run_folder import (
    LOGS_SOCKET,
    RAY_FOLDER,
    TEMPORARY_FOLDER,
    FolderInUse,
    logs_folder,
    run_folder,
)

REAP_EVERY_S = 2.0
# Beyond the drain time and what the ingress gets to settle: for Ray to say so to the replicas.
SHUTDOWN_S = 2.0

# Gives the settings of a file; of None, those that the server was started with.
Read = Callable[[Path | None], Settings]
VLLM_ENVIRONMENT = {"VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR", **ENGINE_LIMITS}


class Stopped(Exception):
    """The operator asked the server to stop."""


def run_server(
    settings: Settings,
    *,
    read: Read,
    announce: Callable[[], None],
    progress: Progress,
    attach: bool = False,
) -> None:
    """Start, announce when ready, and serve until a signal comes; then stop everything that was started. `attach`: on
    a cluster that runs, join what of pith is there, or start it, and leave it at the end. `read` gives the settings
    again when they are to be reloaded, which who has only joined does not.

    Raises `StartError` when a model or the ingress cannot start.
    """
    from serve.transparency.sequencing import sequencing

    adopt_orphans()
    stop_on_signals()
    after = ExitStack()
    coordinator: Coordinator | None = None
    joined = JoinedCluster(settings.ray.address, leaves=attach) if settings.ray.address else None
    reloaders: list[Reloader] = []

    def in_force() -> Settings:
        return reloaders[0].lineup.settings if reloaders else settings

    try:
        take_in_ended = open_ops_port(
            settings,
            after,
            anew=not attach,
            in_force=in_force,
            adapters=lambda: reloaders[0].adapters if reloaders else None,
        )
        folder = after.enter_context(own_folder(settings))
        counts = open_counts(settings, None)
        after.enter_context(relay(folder / LOGS_SOCKET, count_dropped_lines(counts)))
        coordinator = open_own_coordinator(settings, folder, after)
        run, lineup = start(settings, progress, folder, joined, has_coordinator=coordinator is not None)
        if not attach:
            reloaders.append(Reloader(run, lineup, read))
            after.enter_context(control_socket(folder, reloaders[0].answer))
            reload_on_sighup(reloaders[0])
        after.enter_context(sequencing(in_force, counts))
        announce()
        wait_for_signal(take_in_ended)
    except (InsidesChanged, PortsOpen) as error:
        raise StartError(str(error)) from error
    except Stopped:
        progress.say(joined.stopping if joined else "stopping …")
    finally:
        # First: while the last requests end, new ones are refused instead of waiting in vain.
        if coordinator is not None:
            coordinator.stop_listening()
        for reloader in reloaders:
            reloader.close()
        within_s = settings.server.drain_s + SETTLE_S + (SHUTDOWN_S if joined is None else REST_S)
        stop(within_s, joined.release if joined else _shut_down_ray)
        after.close()
        progress.say(joined.stopped if joined else "stopped")


def wait_for_signal(take_in_ended: Callable[[], None]) -> None:
    """Until `Stopped` comes. Meanwhile processes that have ended are reaped, and taken in."""
    started, tick = children_of_this_process(), threading.Event()
    while not tick.wait(REAP_EVERY_S):
        reap_orphans(started)
        take_in_ended()


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


def open_ops_port(
    settings: Settings,
    until: ExitStack,
    *,
    anew: bool,
    in_force: Callable[[], Settings],
    adapters: Callable[[], ServedAdapters | None],
) -> Callable[[], None]:
    """Serve `/metrics` and the admin API. Returns what is to be called now and then. Raises `StartError`."""
    from serve.cluster.deployments.ops import collectors_of
    from serve.metrics.ops_port import ops_port
    from serve.ops.app import open_ops

    try:
        served = partial(open_ops, in_force=in_force, adapters=adapters)
        return until.enter_context(ops_port(settings, served, *collectors_of(settings, in_force), anew=anew))
    except OSError as error:
        ops = settings.ops
        raise StartError(f"cannot serve metrics on {ops.host}:{ops.port}: {error}") from error


def start(
    settings: Settings,
    progress: Progress,
    folder: Path,
    joined: JoinedCluster | None,
    *,
    has_coordinator: bool,
) -> tuple[Run, Lineup]:
    """Bring up Ray, the models that are kept up, and the ingress. Returns what runs, when the service can answer."""
    checkpoints = checkpoints_of(settings, progress)
    require_any(settings, checkpoints)
    os.environ.update(RAY_ENVIRONMENT | VLLM_ENVIRONMENT)
    os.environ.update(temporary_files(folder))
    # What torch compiles is kept for the next run.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(settings.state_dir / "compiled"))
    if joined is None:
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    open_ray(settings, progress, folder, joined)
    run, lineup = Run(folder if has_coordinator else None, progress), first_lineup(settings)
    in_time = within(settings.ray.start_limit_s, says=" (ray.start_limit_s)")
    if joined is not None and (running := joined.begin()):
        run.wait(running, in_time, may_fail=[name for name in running if not is_ingress(name)])
        return run, lineup
    if joined is None:
        check_room(settings)
    else:
        progress.begin("asking the cluster's nodes")
        check_nodes(settings)
    run.deploy_models(lineup, lineup.places, checkpoints)
    run.deploy_ingress(lineup)
    if (outlet := outlet_of_process()) is not None:
        # Ray has put its own in place.
        take_others(outlet)
    try:
        wait_for_first(run, lineup, in_time)
    except StartError as error:
        if joined is not None:
            raise
        written = logs_folder(settings.state_dir, settings.server.port)
        raise StartError(f"{error}; what its processes wrote is in {written}") from error
    return run, lineup


def wait_for_first(run: Run, lineup: Lineup, in_time: Callable[[str], None]) -> None:
    """Until the HTTP processes run, and all that is kept up does or is away. Raises `StartError`, also where no model
    is left to serve."""
    kept_up = lineup.kept_up(lineup.places)
    away = run.wait([lineup.ingress, *kept_up], in_time, may_fail=kept_up)
    if away and away.keys() == set(lineup.places.values()):
        raise StartError("; ".join(f"{name} cannot start: {reason}" for name, reason in away.items()))


def open_ray(settings: Settings, progress: Progress, folder: Path, joined: JoinedCluster | None) -> None:
    """Join the cluster, or start one with Serve on it. Raises `StartError` or `PortsOpen`."""
    progress.begin("loading Ray")
    import ray
    from ray import serve

    quiet_loggers()
    if joined is not None:
        progress.begin(f"joining the cluster at {joined.address}")
        joined.connect(RAY_ENVIRONMENT | VLLM_ENVIRONMENT)
        # Ray has put its own handlers in place.
        stop_on_signals()
        return
    progress.begin("starting Ray")
    # A container's entry point may leave this process children that it did not start.
    before = children_of_this_process()
    with away_from_here():
        ray.init(
            address="local",
            **local_cluster(settings, folder),
            namespace="serve",
            log_to_driver=False,
            configure_logging=False,
        )
    stop_on_signals()
    serve.start(proxy_location="Disabled")
    refuse_open_ports(started_since(before))


def temporary_files(folder: Path) -> dict[str, str]:
    """Environment that says where processes leave sockets and files."""
    for name in (RAY_FOLDER, TEMPORARY_FOLDER):
        (folder / name).mkdir(mode=0o700, exist_ok=True)
    temporary = str(folder / TEMPORARY_FOLDER)
    return {"TMPDIR": temporary, "VLLM_RPC_BASE_PATH": temporary}


def local_cluster(settings: Settings, folder: Path) -> dict[str, object]:
    """Ray's arguments for a cluster of this machine alone, on loopback and without a dashboard."""
    stay_on_this_machine()
    start_no_monitors()
    return {
        "num_cpus": settings.ray.logical_cpus,
        "object_store_memory": settings.ray.object_store_mb * 10**6,
        "include_dashboard": False,
        **own_addresses(folder / RAY_FOLDER),
        "runtime_env": {"worker_process_setup_hook": SETUP_HOOK},
    }


def stop_on_signals() -> None:
    """Turn the first SIGINT or SIGTERM into `Stopped` in the main thread; later ones are ignored while stopping."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)
        raise Stopped

    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, on_signal)


def stop(within_s: float, release: Callable[[], None]) -> None:
    """Stop everything that `start` started: running requests end and are settled first, then the rest goes. `release`
    does what concerns Ray."""
    ray = sys.modules.get("ray")
    if ray is not None:
        worker = threading.Thread(target=release, daemon=True)
        worker.start()
        worker.join(within_s)
    stop_descendants()


def _shut_down_ray() -> None:
    import ray

    try:
        if ray.is_initialized():
            delete_ingress()
            ray.shutdown()
    except Exception:
        logging.getLogger("pith").debug("Ray did not shut down cleanly", exc_info=True)
