"""Bounds of a port: connections, times and names, from the configuration."""

from dataclasses import dataclass

from starlette.types import ASGIApp

from serve.config.settings import ServerSettings, Settings
from serve.config.values.networks import LOOPBACK, Network, networks
from serve.http.server.hosts import Hosts, misdirected
from serve.http.server.receive_deadlines import ReceiveTimes
from serve.http.server.send_deadlines import SendTimes
from serve.processes.connections import Connections, files_to_spare

# Scrapes, administrators and probes are few.
OPS_CONNECTIONS = 256
OPS_CONNECTIONS_PER_ADDRESS = 64


@dataclass(frozen=True, slots=True)
class Bounds:
    """What all connections of one port are counted and measured by. Those from networks in `not_counted` are bound by
    the overall limit only. `misdirected` answers requests for other hosts."""

    connections: Connections
    not_counted: tuple[Network, ...]
    receive: ReceiveTimes
    send: SendTimes
    hosts: Hosts
    misdirected: ASGIApp


def public_bounds(server: ServerSettings) -> Bounds:
    """Those of the public port, for one HTTP process."""
    return Bounds(
        Connections(
            most=min(server.max_connections, files_to_spare()),
            most_per_client=server.max_connections_per_address,
        ),
        # Proxies bring many clients, and this machine's own are no strangers.
        networks([*LOOPBACK, *server.trusted_proxies]),
        _receive_times(server),
        _send_times(server),
        Hosts(server.host, server.allowed_hosts),
        misdirected("server.allowed_hosts"),
    )


def ops_bounds(settings: Settings) -> Bounds:
    """Those of the ops port: fewer connections, the same times."""
    return Bounds(
        Connections(most=OPS_CONNECTIONS, most_per_client=OPS_CONNECTIONS_PER_ADDRESS),
        networks(LOOPBACK),
        _receive_times(settings.server),
        _send_times(settings.server),
        Hosts(settings.ops.host, settings.ops.allowed_hosts),
        misdirected("ops.allowed_hosts"),
    )


def _receive_times(server: ServerSettings) -> ReceiveTimes:
    return ReceiveTimes(
        idle_s=server.idle_timeout_s,
        head_s=server.head_timeout_s,
        body_s=server.body_timeout_s,
        body_bytes_per_s=server.body_bytes_per_s,
    )


def _send_times(server: ServerSettings) -> SendTimes:
    # The engine's own bounds end a request by then, unless it waits for its client.
    longest_s = server.start_wait_s + server.longest_request_s + server.stall_s
    return SendTimes(stalled_s=server.send_timeout_s, longest_s=longest_s)
