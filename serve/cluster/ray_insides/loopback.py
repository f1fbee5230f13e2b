"""Keeps Ray's processes on this machine's loopback: some of their ports accept pickled code from anyone who connects.

Ray 2.60 has no setting for the port that Serve's replicas open to one another, so every worker process of a
cluster of our own runs `bind_to_loopback` before anything else (`worker_process_setup_hook`). Whether that did its work
is not left to Ray's insides: where a process of Ray's or a replica listens beyond loopback, the start fails.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from serve.cluster.ray_insides.ray_serve import InsidesChanged, wrap_grpc_port

if TYPE_CHECKING:
    from psutil import Process

logger = logging.getLogger("pith.loopback")
SETUP_HOOK = "serve.cluster.ray_insides.loopback.bind_to_loopback"
ALL_INTERFACES = frozenset({"[::]", "0.0.0.0"})
LOOPBACK = "127.0.0.1"
LOOPBACK_ADDRESSES = frozenset({LOOPBACK, "::1", "::ffff:127.0.0.1"})


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
