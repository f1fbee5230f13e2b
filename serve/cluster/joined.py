"""pith on a Ray cluster that others run: what of it this process starts, and so stops, and what it leaves there."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path

from serve.cluster.progress import StartError
from serve.cluster.ray_insides.ray_serve import (
    RAY_ENVIRONMENT,
    SETUP_HOOK,
    application_statuses,
    away_from_here,
    controller_id,
    is_started_by_pith,
    note_started,
    undeploy,
)
from serve.cluster.replicas.applications import is_ingress, is_of_pith

CONNECT_S = 5.0
POLL_S = 0.1
# Beyond what the HTTP processes get for their last requests: for all others to end, and for Serve.
REST_S = 20.0
TOKEN_FILE = Path("~/.ray/auth_token")
TOKEN_VARIABLES = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")


class JoinedCluster:
    """The cluster at `address`, which Ray's own commands started and stop. `leaves`: pith is joined where it runs
    already, and runs on at the end."""

    def __init__(self, address: str, *, leaves: bool) -> None:
        self.address = address
        self._leaves = leaves
        self._begun = False
        self._left = f"pith runs on: `pith stop` stops it, and `pith serve --attach` joins it ({address})"
        self.stopped = f"stopped; nothing was started on the cluster at {address}"

    @property
    def stopping(self) -> str:
        """Said when the end begins."""
        if self._leaves:
            return f"leaving the cluster at {self.address} …"
        return f"stopping what this server started on the cluster at {self.address} …"

    def connect(self, environment: Mapping[str, str]) -> None:
        """`environment` is what every process of the cluster needs that works for pith. Raises `StartError`."""
        import ray

        require_token()
        require_open(self.address)
        hook = {"worker_process_setup_hook": SETUP_HOOK, "env_vars": dict(environment)}
        try:
            with away_from_here():
                ray.init(
                    address=self.address,
                    namespace="serve",
                    log_to_driver=False,
                    configure_logging=False,
                    runtime_env=hook,
                )
        except (ConnectionError, RuntimeError) as error:
            raise StartError(f"ray.address: cannot join {self.address}: {first_line(error)}") from error

    def begin(self) -> list[str]:
        """The applications of pith that run already; where there are none, this process is to start them, and Serve
        runs. Raises `StartError` where some run and are not to be joined."""
        from ray import serve

        is_there = controller_id() is not None
        running = [name for name in application_statuses() if is_of_pith(name)] if is_there else []
        if running and not self._leaves:
            raise StartError(
                f"pith runs already on the cluster at {self.address} ({', '.join(sorted(running))}): join it with "
                "`pith serve --attach`, or stop it with `pith stop`"
            )
        if not is_there:
            serve.start(proxy_location="Disabled")
            note_started()
        self._begun = not running
        return running

    def release(self) -> None:
        """Stop what this process has started, unless it is to be left."""
        import ray

        if not ray.is_initialized():
            return
        if self._leaves:
            self.stopped = f"left: {self._left}"
        elif self._begun:
            self.stopped = "not all is stopped yet: `pith stop` stops the rest"
            self.stopped = f"stopped: {stop_pith()}"
        ray.shutdown()


def stop_at(address: str) -> str:
    """Join a cluster to stop pith there; returns what was stopped, in words. Raises `StartError`."""
    os.environ.update(RAY_ENVIRONMENT)
    JoinedCluster(address, leaves=True).connect(RAY_ENVIRONMENT)
    from ray import serve  # noqa: F401

    # Serve has set its own up now.
    quiet_loggers()
    return stop_pith()


def quiet_loggers() -> None:
    """Keep the libraries' narration off the operator's screen; their files have it."""
    for name in ("ray", "ray.serve", "ray.data", "ray.tune", "ray.rllib", "ray.train", "vllm"):
        logging.getLogger(name).setLevel(logging.ERROR)


def stop_pith() -> str:
    """Stop every application of pith on the cluster, the HTTP processes first, whose requests need the others; and
    Serve, if pith started it and nobody else uses it. Returns what was stopped and what was not, in words."""
    from ray import serve

    if controller_id() is None:
        return "nothing of pith runs there; Ray runs on"
    names = [name for name in application_statuses() if is_of_pith(name)]
    first = [name for name in names if is_ingress(name)]
    for name in first:
        serve.delete(name)
    for name in set(names) - set(first):
        undeploy(name)
    until_gone(names)
    done = f"{len(names)} applications of pith"
    if application_statuses():
        return f"{done}; Ray Serve runs on, with applications of others, and so does Ray"
    if not is_started_by_pith():
        return f"{done}; Ray Serve, which pith did not start, runs on, and so does Ray"
    serve.shutdown()
    return f"{done}, and Ray Serve; Ray runs on"


def until_gone(names: list[str]) -> None:
    while set(names) & set(application_statuses()):
        time.sleep(POLL_S)


def require_token() -> None:
    """Raises `StartError`: with a token of this process's own the cluster would refuse it without a clear word."""
    if not any(os.environ.get(name) for name in TOKEN_VARIABLES) and not TOKEN_FILE.expanduser().is_file():
        raise StartError(
            "ray.address: no token for the cluster: set RAY_AUTH_TOKEN to the one that its nodes were started with, "
            f"or write it to {TOKEN_FILE} (mode 0600)"
        )


def require_open(address: str) -> None:
    """Raises `StartError` where nothing listens at `HOST:PORT`; Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "://" in address:
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
    except OSError as error:
        raise StartError(f"ray.address: nothing answers at {address}: {error}") from error


def first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
