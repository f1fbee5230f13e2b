"""Bounds of a port, from the configuration: connections, times, and the names it answers to (against DNS rebinding)."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address

from starlette.types import ASGIApp, Receive, Scope, Send

from serve.config.server_settings import ServerSettings
from serve.config.settings import Settings
from serve.config.values import ANY, LOCALHOST, LOOPBACK, Network, parse_networks
from serve.http.error_dialects import response_of
from serve.http.errors import Problem
from serve.http.limits import is_in_networks
from serve.http.middleware import RequestIdMiddleware
from serve.http.server.deadlines import SendTimes
from serve.processes.connections import Connections
from serve.processes.process_setup import files_to_spare

# A name or an address, and a port that may be empty.
_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]{2,45}\]|[0-9A-Za-z._-]{1,253})(?::[0-9]{0,5})?")
# Of a target as proxies are asked; what stands before an `@` is part of it, and of no name here.
_AUTHORITY = re.compile(rb"[A-Za-z][0-9A-Za-z+.-]{0,63}://([^/?#]{0,300})")
_LOOPBACK = parse_networks(LOOPBACK)
# What clients send is the same few bytes again and again.
MOST_REMEMBERED = 64


def is_loopback(host: str) -> bool:
    """True if only this machine reaches what listens on this address."""
    return host == LOCALHOST or is_in_networks(host, _LOOPBACK)


class Hosts:
    """The names of one port. On loopback it is this machine's own, and those that are configured. Elsewhere any will do
    unless some are configured, and so will any address: a page that was reached by an address is nobody else's."""

    def __init__(self, bound_to: str, configured: Iterable[str]) -> None:
        names = set(configured)
        self._is_loopback = is_loopback(bound_to)
        self._is_any = ANY in names or not (names or self._is_loopback)
        self._names = names | {LOCALHOST, bound_to.lower()}
        self._known: set[bytes] = set()

    def has(self, given: bytes) -> bool:
        """True if a `Host` header names this server."""
        if self._is_any or given in self._known:
            return True
        if not self._is_ours(given):
            return False
        if len(self._known) < MOST_REMEMBERED:
            self._known.add(given)
        return True

    def has_target(self, target: bytes) -> bool:
        """True if a request's target in absolute form names this server; one without a host does not name another."""
        found = _AUTHORITY.match(target)
        return found is None or self.has(found[1])

    def _is_ours(self, given: bytes) -> bool:
        found = _HOST.fullmatch(given)
        if found is None:
            return False
        name = found[1].decode("ascii").strip("[]").lower().removesuffix(".")
        return name in self._names or (
            is_in_networks(name, _LOOPBACK) if self._is_loopback else _is_address(name)
        )


class Misdirected:
    """Answers a request for another host, whatever it asks."""

    def __init__(self, setting: str) -> None:
        words = (
            "this server is not known by the name in the request's Host header; its operator lists names in "
        )
        self._problem = Problem(421, "invalid_request_error", "misdirected_request", words + setting)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = response_of(self._problem, scope["path"], scope["state"]["request_id"])
        await answer(scope, receive, send)


def misdirected(setting: str) -> ASGIApp:
    """The application that answers them; `setting` is the configuration's key with the names."""
    return RequestIdMiddleware(Misdirected(setting))


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


# Scrapes, administrators and probes are few.
OPS_CONNECTIONS = 256
OPS_CONNECTIONS_PER_ADDRESS = 64


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds on all connections of one port. Those from networks in `not_counted` are bound by the overall limit only.
    `receive` has the times for what a client sends; `misdirected` answers requests for other hosts."""

    connections: Connections
    not_counted: tuple[Network, ...]
    receive: ServerSettings
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
        parse_networks([*LOOPBACK, *server.trusted_proxies]),
        server,
        _send_times(server),
        Hosts(server.host, server.allowed_hosts),
        misdirected("server.allowed_hosts"),
    )


def ops_bounds(settings: Settings) -> Bounds:
    """Those of the ops port: fewer connections, the same times."""
    return Bounds(
        Connections(most=OPS_CONNECTIONS, most_per_client=OPS_CONNECTIONS_PER_ADDRESS),
        parse_networks(LOOPBACK),
        settings.server,
        _send_times(settings.server),
        Hosts(settings.ops.host, settings.ops.allowed_hosts),
        misdirected("ops.allowed_hosts"),
    )


def _send_times(server: ServerSettings) -> SendTimes:
    # The engine's own bounds end a request by then, unless it waits for its client.
    longest_s = server.start_wait_s + server.longest_request_s + server.stall_s
    return SendTimes(stalled_s=server.send_timeout_s, longest_s=longest_s)
