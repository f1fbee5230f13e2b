"""The ops port: its application in a thread with a loop of its own, beside whatever else the process does."""

import threading
from collections.abc import Callable
from pathlib import Path

from prometheus_client import CollectorRegistry

from serve.config.settings import Settings
from serve.http.server.bounds import is_loopback, ops_bounds
from serve.http.server.server import PithServer, config_within
from serve.ops.admin_key import FILE, make_admin_key
from serve.ops.app import create_ops
from serve.processes.listener import BACKLOG, Listener, bound_socket

START_S = 30.0
STOP_S = 5


def open_ops(
    settings: Settings, registry: CollectorRegistry, *, in_force: Callable[[], Settings] | None = None
) -> Callable[[], None]:
    """Listen; returns what ends it. `in_force` gives the settings as a reload has left them.

    Raises `OSError` where it cannot listen, or cannot make the admin key.
    """
    sock = bound_socket(settings.ops.host, settings.ops.port, shared=False)
    try:
        sock.listen(BACKLOG)
        app = create_ops(settings, registry, admin_key_file(settings), in_force)
    except BaseException:
        sock.close()
        raise
    config = config_within(
        app, ops_bounds(settings), lifespan="on", proxy_headers=False, timeout_graceful_shutdown=STOP_S
    )
    server = PithServer(config, Listener(sock))
    return _serve(server)


def admin_key_file(settings: Settings) -> Path | None:
    """The file of the admin keys, made where it is not there; None where the admin API is not served: beyond loopback
    it is served only where the settings say so. Raises `OSError`."""
    served = settings.ops.admin
    if served is None:
        served = is_loopback(settings.ops.host)
    if not served:
        return None
    path = settings.ops.admin_key_file or settings.state_dir / FILE
    make_admin_key(path)
    return path


def _serve(server: PithServer) -> Callable[[], None]:
    thread = threading.Thread(target=server.run, name="ops-port", daemon=True)
    thread.start()

    def close() -> None:
        server.should_exit = True
        thread.join(START_S)

    return close
