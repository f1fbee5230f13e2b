"""Private parts of Ray and Ray Serve that pith uses, with each reason; and loopback by their means.

It imports Ray only where it is called: every process of a cluster of our own reads this before its work. The pinned
version is held to these meanings by `tests/serve/cluster/ray_insides/`, without a Ray that runs. What Ray Serve LLM
keeps for itself is in `serve.cluster.ray_insides.ray_serve_llm`.

Some of Ray's ports accept pickled code from anyone who connects. Ray 2.60 has no setting for the port that Serve's
replicas open to one another, so every worker process of a cluster of our own runs `bind_to_loopback` before anything
else (`worker_process_setup_hook`). Whether that did its work is not left to Ray's insides: where a process of Ray's or
a replica listens beyond loopback, the start fails.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, chdir
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from psutil import Process
    from ray.serve.handle import DeploymentHandle

# From which Ray takes `ray_constants.ENABLE_RAY_CLUSTER` in a process that imports it.
CLUSTERS_VARIABLE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
# Ray reads these once, when it is imported and when its processes start.
RAY_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray's own ports accept code from anyone who can reach them: only holders of this server's token may.
    "RAY_AUTH_MODE": "token",
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Ray's own is 15: any other process of the machine would get twenty times the CPU time of the ingress and engines.
    "RAY_worker_niceness": "0",
    "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
    "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0",
    "RAY_SERVE_REQUEST_PATH_LOG_BUFFER_SIZE": "1000",
    # Ray's own are 0.1 s, at which they take some 5% of a core with nothing to do.
    "RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "0.25",
    "RAY_SERVE_METRICS_EXPORT_INTERVAL_MS": "1000",
    "RAY_SERVE_LOG_TO_STDERR": "0",
    # A replica that is not needed any more may end its requests; one that hangs must make way.
    "RAY_SERVE_FORCE_STOP_UNHEALTHY_REPLICAS": "1",
    "RAYLLM_ENABLE_REQUEST_PROMPT_LOGS": "0",
    # Ray Serve LLM's own hook does nothing and would take the place of ours.
    "RAYLLM_ENABLE_WORKER_PROCESS_SETUP_HOOK": "0",
}
NOTED_AT, FAILED_AT, BEGUN_AT = b"pith:started_serve", b"pith:failed_starts:", b"pith:begun_starts:"
logger = logging.getLogger("pith.loopback")
SETUP_HOOK = "serve.cluster.ray_insides.ray_serve.bind_to_loopback"
ALL_INTERFACES = frozenset({"[::]", "0.0.0.0"})
LOOPBACK = "127.0.0.1"
LOOPBACK_ADDRESSES = frozenset({LOOPBACK, "::1", "::ffff:127.0.0.1"})


class InsidesChanged(RuntimeError):
    """This Ray does not have what is relied on here."""


def stay_on_this_machine() -> None:
    """Before `ray.init`: what Ray does on desktops, where no cluster spans machines
    (`ray_constants.ENABLE_RAY_CLUSTER`). Without it its processes listen on all interfaces, and those that join the
    cluster from outside Ray's workers, as vLLM's engine cores do, take the machine's outer address for 127.0.0.1,
    where nothing answers (`services.canonicalize_bootstrap_address`). In the environment for the latter: Ray reads it
    when it is imported. Raises `InsidesChanged`."""
    import os

    from ray._private import ray_constants

    if not isinstance(getattr(ray_constants, "ENABLE_RAY_CLUSTER", None), bool):
        raise InsidesChanged("ray._private.ray_constants.ENABLE_RAY_CLUSTER is gone")
    ray_constants.ENABLE_RAY_CLUSTER = False
    os.environ[CLUSTERS_VARIABLE] = "0"


def away_from_here() -> AbstractContextManager[None]:
    """Around `ray.init`: its workers import from the folder that this process is in before all else
    (`JobConfig._py_driver_sys_path`), and an operator's folder may have a `models.py`, or a checkout of another pith.
    Python's own folder, where `pith` itself is, takes its place."""
    return chdir(Path(sys.executable).parent)


def start_no_monitors() -> None:
    """Before `ray.init` of a cluster of this machine alone: neither the process that would ask a cloud for machines nor
    the one that would print workers' logs, which is switched off (`ray._private.node.Node`). Without it two processes
    of some 90 MiB start with the server, and have nothing to do. Raises `InsidesChanged`."""
    from ray._private.node import Node

    for name in ("start_monitor", "start_log_monitor"):
        if not callable(getattr(Node, name, None)):
            raise InsidesChanged(f"ray._private.node.Node.{name} is gone")
        setattr(Node, name, lambda self: None)


def own_addresses(folder: Path) -> dict[str, str]:
    """Arguments of `ray.init` for a cluster of this machine alone (`_node_ip_address`, `_temp_dir`): loopback, and
    sockets in a folder of ours. Without the first, machines of the network could reach Ray."""
    return {"_node_ip_address": "127.0.0.1", "_temp_dir": str(folder)}


def wrap_grpc_port(wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Put a function around the one by which gRPC servers of this process get their ports
    (`ray._common.tls_utils.add_port_to_grpc_server`): Serve's replicas have no setting for theirs. Raises
    `InsidesChanged`, also where the module that would call it has been imported and has the old one."""
    from ray._common import tls_utils

    if "ray.serve._private.replica" in sys.modules:
        raise InsidesChanged(
            "ray.serve._private.replica is imported before its ports can be bound to loopback"
        )
    inner = getattr(tls_utils, "add_port_to_grpc_server", None)
    if inner is None:
        raise InsidesChanged("ray._common.tls_utils.add_port_to_grpc_server is gone")
    tls_utils.add_port_to_grpc_server = wrap(inner)


def deploy(application: Any, name: str) -> None:
    """`serve.run` without waiting, so that all applications start together: `serve._run` has `_blocking`."""
    from ray import serve

    serve._run(application, name=name, route_prefix=None, _blocking=False)


def undeploy(name: str) -> None:
    """`serve.delete` without waiting: an application's requests may run for an hour. It has `_blocking` for that."""
    from ray import serve

    serve.delete(name, _blocking=False)


def application_statuses() -> dict[str, Any]:
    """All that the controller knows of, by name: `ray.serve.status().applications` in a fortieth of its processor time.
    That first makes models of the controller's answer, which pickle the request router of each deployment anew
    (`ServeInstanceDetails`); these are the overviews alone (`ServeControllerClient.get_serve_details`)."""
    from ray.serve.context import _get_global_client
    from ray.serve.schema import ApplicationStatusOverview, DeploymentStatusOverview

    client = _get_global_client(raise_if_no_controller_running=False)
    if client is None:
        return {}

    def of_deployment(told: Any) -> Any:
        states = Counter(replica["state"] for replica in told["replicas"])
        return DeploymentStatusOverview(told["status"], told["status_trigger"], dict(states), told["message"])

    def of_application(told: Any) -> Any:
        deployments = {name: of_deployment(each) for name, each in told["deployments"].items()}
        return ApplicationStatusOverview(
            told["status"], told["message"], told["last_deployed_time_s"], deployments
        )

    return {name: of_application(told) for name, told in client.get_serve_details()["applications"].items()}


class Everyone:
    """Calls a method of all replicas of an application. `DeploymentHandle._init(_run_router_in_separate_loop)`: from a
    thread that has no event loop."""

    def __init__(self, application: str) -> None:
        from ray import serve

        self._handle = serve.get_app_handle(application)
        if not self._handle.is_initialized:
            self._handle._init(_run_router_in_separate_loop=True)

    def ask(self, method: str, *arguments: Any, timeout_s: float) -> list[Any]:
        """Answers of all that run. Raises what Ray Serve raises, also where none runs."""
        return list(self._handle.broadcast(method, *arguments).results(timeout_s=timeout_s))


class RoutedHandle:
    """A deployment's handle, as far as requests go past it: which replicas run, which one takes a request, and what
    The load is reported to Ray, which scales by it. Create it in the event loop in which it is used.

    `DeploymentHandle._init(_run_router_in_separate_loop)`: the router in this loop, so that it may be read without a
    lock. `._router._asyncio_router`: its `request_router` and `_metrics_manager`. `choose_replica(_reserve=False)`:
    a reservation would be two calls through Ray for each request. `_replica` of what was chosen.
    """

    def __init__(self, handle: DeploymentHandle) -> None:
        if not handle.is_initialized:
            handle._init(_run_router_in_separate_loop=False)
        self._handle = handle.options(method_name="awake")

    @property
    def _ray(self) -> Any:
        return self._handle._router._asyncio_router

    @property
    def router(self) -> Any:
        """The request router that the deployment asked for; None before Ray knows the deployment."""
        return self._ray.request_router

    async def wake(self) -> None:
        """Return when a replica runs, which Ray starts where none does."""
        await self._handle.remote()

    def choose(self, beginnings: list[int]) -> AbstractAsyncContextManager[Any]:
        """The replica that the router ranks first and that has room; `replica_id_of` tells which."""
        chosen: AbstractAsyncContextManager[Any] = self._handle.choose_replica(beginnings, _reserve=False)
        return chosen

    def count_waiting(self, change: int) -> None:
        """Tell Ray that one request more (1) or less (-1) waits for a replica."""
        counts = self._ray._metrics_manager
        (counts.inc_num_queued_requests if change > 0 else counts.dec_num_queued_requests)()

    def count_running(self, replica_id: Any, change: int) -> None:
        """Tell Ray that one request more (1) or less (-1) runs on a replica."""
        counts = self._ray._metrics_manager
        if change > 0:
            counts.inc_num_running_requests_for_replica(replica_id)
        else:
            counts.dec_num_running_requests_for_replica(replica_id)


def replica_id_of(chosen: Any) -> Any:
    """The key of what `RoutedHandle.choose` gave, under which the router and Ray's counts know the replica."""
    return chosen._replica.replica_id


def controller_id() -> str | None:
    """The id of Serve's controller on the cluster; None where none runs."""
    import ray
    from ray.serve._private.constants import SERVE_CONTROLLER_NAME, SERVE_NAMESPACE

    try:
        return str(ray.get_actor(SERVE_CONTROLLER_NAME, namespace=SERVE_NAMESPACE)._actor_id.hex())
    except ValueError:
        return None


def note_started() -> None:
    """The Serve that runs was started by pith."""
    from ray.experimental.internal_kv import _internal_kv_put

    _internal_kv_put(NOTED_AT, (controller_id() or "").encode(), overwrite=True)


def is_started_by_pith() -> bool:
    from ray.experimental.internal_kv import _internal_kv_get

    noted, running = _internal_kv_get(NOTED_AT), controller_id()
    return running is not None and noted == running.encode()


def failed_starts(application: str) -> int:
    """How many starts of its replicas have failed since one succeeded."""
    from ray.experimental.internal_kv import _internal_kv_get

    return int(_internal_kv_get(FAILED_AT + application.encode()) or 0)


def note_failed_starts(application: str, number: int) -> None:
    from ray.experimental.internal_kv import _internal_kv_put

    _internal_kv_put(FAILED_AT + application.encode(), str(number).encode(), overwrite=True)


def note_begun_start(application: str, replica: str, *, ended: bool = False) -> None:
    """That a start of its replica, an actor of Serve's, begins, or that it has `ended` and could say how."""
    from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_put

    key = BEGUN_AT + f"{application}#{replica}".encode()
    _internal_kv_del(key) if ended else _internal_kv_put(key, b"1", overwrite=True)


def note_killed_starts(application: str) -> None:
    """Count as failed the starts that have begun and not ended, and whose replicas are gone: these were killed."""
    from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_list

    prefix = BEGUN_AT + f"{application}#".encode()
    for key in _internal_kv_list(prefix):
        # Of two that see it, one counts it.
        if not _is_alive(key.removeprefix(prefix).decode()) and _internal_kv_del(key):
            note_failed_starts(application, failed_starts(application) + 1)


def _is_alive(replica: str) -> bool:
    import ray
    from ray.serve._private.constants import SERVE_NAMESPACE

    try:
        ray.get_actor(replica, namespace=SERVE_NAMESPACE)
    except ValueError:
        return False
    return True


class PortsOpen(RuntimeError):
    """A process listens where other machines may reach it."""


def bind_to_loopback() -> None:
    """Make gRPC servers of this process that would listen everywhere listen on loopback.

    It does not raise: Ray would start another worker in the place of each that fails here, without end. The replica is
    refused by its `PortCheck` instead, which names the port.
    """
    try:
        wrap_grpc_port(_with_loopback_address)
    except InsidesChanged:
        logger.exception("ports of this process cannot be bound to loopback")


def _with_loopback_address(add_port: Callable[..., Any]) -> Callable[..., Any]:
    def add_loopback_port(server: Any, address: str) -> Any:
        return add_port(server, loopback_address(address))

    return add_loopback_port


def loopback_address(address: str) -> str:
    """The same port on loopback. Raises `InsidesChanged` for any other host than all interfaces or loopback."""
    host, _, port = address.rpartition(":")
    if host not in ALL_INTERFACES | {LOOPBACK}:
        raise InsidesChanged(f"one of Ray's gRPC servers would listen on {address!r}")
    return f"{LOOPBACK}:{port}"


def refuse_open_ports(processes: Iterable[Process], *, but_for: Iterable[int] = ()) -> None:
    """Raises `PortsOpen` where one of them listens beyond loopback, other than on the ports `but_for`, or where that
    cannot be seen."""
    import psutil

    for process in processes:
        try:
            listening = [found for found in process.net_connections("inet") if found.status == "LISTEN"]
            beyond = [
                f"{found.laddr.ip}:{found.laddr.port}"
                for found in listening
                if found.laddr.ip not in LOOPBACK_ADDRESSES and found.laddr.port not in but_for
            ]
            if beyond:
                raise PortsOpen(
                    f"{process.name()} listens on {', '.join(beyond)}, beyond this machine's loopback"
                )
        except psutil.NoSuchProcess:
            continue
        except psutil.AccessDenied:
            raise PortsOpen(f"cannot see on which ports process {process.pid} listens") from None


class PortCheck:
    """Looks at this process's own ports once, at a replica's first health check: before, Ray has not opened them, and
    one that fails it is never used. Where a cluster spans machines (`on_loopback` false), it passes."""

    def __init__(self, *, on_loopback: bool, but_for: Iterable[int] = ()) -> None:
        self._due = on_loopback
        self._but_for = tuple(but_for)

    def pass_once(self) -> None:
        """Raises `PortsOpen`."""
        if self._due:
            import psutil

            refuse_open_ports([psutil.Process()], but_for=self._but_for)
            self._due = False
