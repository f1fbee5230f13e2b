"""Keeps Ray's processes on this machine's loopback: some of their ports take pickled code from whoever connects.

Ray 2.60 has no setting for the port that Serve's replicas open to one another, so every worker process of a
cluster of our own runs `bind_to_loopback` before anything else (`worker_process_setup_hook`).
"""

from __future__ import annotations

from typing import Any

SETUP_HOOK = "serve.cluster.loopback.bind_to_loopback"
ALL_INTERFACES = "[::]:"
LOOPBACK = "127.0.0.1:"


def bind_to_loopback() -> None:
    """Make gRPC servers of this process that would listen everywhere listen on loopback."""
    from ray._common import tls_utils

    add_port = tls_utils.add_port_to_grpc_server

    def add_loopback_port(server: Any, address: str) -> Any:
        return add_port(server, address.replace(ALL_INTERFACES, LOOPBACK))

    tls_utils.add_port_to_grpc_server = add_loopback_port
