"""The ops port: its application in a thread with a loop of its own, beside whatever else the process does."""

import socket
import threading
from collections.abc import Callable
from pathlib import Path

import uvicorn
from prometheus_client import CollectorRegistry

from serve.config.settings import Settings
from serve.config.values.networks import LOOPBACK, networks
from serve.http.client_address import is_in_networks
from serve.ops.admin_key import FILE, make_admin_key
from serve.ops.app import create_ops
from serve.processes.listener import bound_socket

START_S = 30.0
BACKLOG = 64
MOST_AT_ONCE = 64


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
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="on",
            ws="none",
            proxy_headers=False,
            limit_concurrency=MOST_AT_ONCE,
            timeout_keep_alive=10,
            timeout_graceful_shutdown=5,
        )
    )
    return _serve(server, sock)


def admin_key_file(settings: Settings) -> Path | None:
    """The file of the admin keys, made where it is not there; None where the admin API is not served: beyond loopback
    it is served only where the settings say so. Raises `OSError`."""
    served = settings.ops.admin
    if served is None:
        host = settings.ops.host
        served = host == "localhost" or is_in_networks(host, networks(LOOPBACK))
    if not served:
        return None
    path = settings.ops.admin_key_file or settings.state_dir / FILE
    make_admin_key(path)
    return path


def _serve(server: uvicorn.Server, sock: socket.socket) -> Callable[[], None]:
    thread = threading.Thread(target=server.run, args=([sock],), name="ops-port", daemon=True)
    thread.start()

    def close() -> None:
        server.should_exit = True
        thread.join(START_S)
        sock.close()

    return close
