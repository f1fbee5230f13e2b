"""The end of HTTP processes and of nodes without a failed request: `pith reload` retires those, `pith drain` both."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from serve.cluster.joined import JoinedCluster, first_line, quiet_loggers
from serve.cluster.progress import StartError
from serve.cluster.ray_insides.cluster_nodes import (
    ClusterNode,
    PlacedReplica,
    begin_drain,
    draining_nodes,
    living_nodes,
    placed_replicas,
)
from serve.cluster.ray_insides.ray_serve import RAY_ENVIRONMENT, Everyone
from serve.cluster.replicas.applications import is_ingress, is_of_pith
from serve.config.server_settings import ServerSettings
from serve.config.settings import Settings

POLL_S = 0.25
RETIRE_POLL_S = 0.5
ANSWER_S = 10.0
# Beyond what any request and any silent connection may take.
SETTLE_S = 30.0
# How many connections may still ask something, and how many have a request that runs.
Left = tuple[int, int]
logger = logging.getLogger("pith.reload")
WHY = "pith drain"
BROKEN_OFF = "call it again, or see docs/operations/nodes.md for how the node gets its HTTP process back"
Say = Callable[[str], None]


class Retiring:
    """The HTTP processes of one application. `ask` has each of them retire, however often it is called, and returns
    what is `Left` in each."""

    def __init__(self, ask: Callable[[], list[Left]], *, within_s: float) -> None:
        self._ask = ask
        self._until = time.monotonic() + within_s
        self._tick = threading.Event()

    def wait_for_connections(self) -> int:
        """Until no connection may bring a request any more. Returns how many requests still run."""
        left = self._wait(lambda idle, working: idle == 0)
        return left[1] if left is not None else 0

    def wait_for_requests(self) -> bool:
        """Until no request runs either, or the time for that is over; whether none runs."""
        return self._wait(lambda idle, working: idle + working == 0) == (0, 0)

    def _wait(self, is_enough: Callable[[int, int], bool]) -> Left | None:
        while True:
            left = self._left()
            if left is not None and is_enough(*left):
                return left
            if time.monotonic() > self._until:
                return left
            self._tick.wait(RETIRE_POLL_S)

    def _left(self) -> Left | None:
        """None where it is unknown: a process has just died, say, and Ray starts another, which is to retire too."""
        try:
            found = self._ask()
        except Exception as error:
            logger.debug("HTTP processes that retire do not answer: %s", error)
            return None
        return sum(idle for idle, _ in found), sum(working for _, working in found)


def retiring(application: str, server: ServerSettings) -> Retiring:
    """The HTTP processes of `application`, which run with these settings."""
    return Retiring(asking(application), within_s=longest_s(server))


def longest_s(server: ServerSettings) -> float:
    """Longer than any request and any silent connection."""
    return server.start_wait_s + server.longest_request_s + server.idle_timeout_s + SETTLE_S


def asking(application: str, *arguments: Any) -> Callable[[], list[Left]]:
    """Has each HTTP process of the application retire, with these arguments."""
    everyone: list[Everyone] = []

    def ask() -> list[Left]:
        # Not before: what fails here is tried again.
        if not everyone:
            everyone.append(Everyone(application))
        return everyone[0].ask("retire", *arguments, timeout_s=ANSWER_S)

    return ask


def drain_at(settings: Settings, name: str, *, within_s: float, say: Say) -> None:
    """Join the cluster of these settings to drain the node of this address, host name or id. `within_s`: how long is
    waited for replicas elsewhere, before what has none ends without; and for requests of its HTTP process. Raises
    `StartError`."""
    os.environ.update(RAY_ENVIRONMENT)
    JoinedCluster(settings.ray.address or "auto", leaves=True).connect(RAY_ENVIRONMENT)
    from ray import serve  # noqa: F401

    quiet_loggers()
    import ray
    from ray.exceptions import RayError

    try:
        node = node_named(name, living_nodes(), own=ray.get_runtime_context().get_node_id())
        see_off_clients(node, within_s, say)
        begin_drain(node.id, WHY)
        say(f"{node.address}: gets no more work; its replicas are started elsewhere")
        end_the_rest(node, wait_for_replacements(node, within_s, say), longest_s(settings.server), say)
    except (RayError, RuntimeError, OSError) as error:
        raise StartError(f"{name}: the drain broke off: {first_line(error)}; {BROKEN_OFF}") from error


def end_the_rest(node: ClusterNode, left: Collection[PlacedReplica], within_s: float, say: Say) -> None:
    """Have what has no place elsewhere end without, and wait for that and for what ends already. Raises
    `StartError`."""
    for line in said_of(left):
        say(f"{node.address}: {line}")
    if any(one.is_leaving for one in left):
        begin_drain(node.id, WHY, deadline_ms=int(time.time() * 1000))
    until = time.monotonic() + within_s
    while left := [one for one in of_pith() if one.node_id == node.id]:
        if time.monotonic() > until:
            raise StartError(f"{node.address}: after {within_s:g} s more {names_of(left)} still run there")
        time.sleep(POLL_S)


def said_of(left: Iterable[PlacedReplica]) -> list[str]:
    """Replicas that nothing more is waited for, a line for each of the two reasons."""
    homeless: list[PlacedReplica] = []
    ending: list[PlacedReplica] = []
    for one in left:
        (homeless if one.is_leaving else ending).append(one)
    return [
        *([f"{names_of(homeless)}: no room elsewhere; their requests end first"] if homeless else []),
        *([f"{names_of(ending)}: requests still run there"] if ending else []),
    ]


def names_of(replicas: Iterable[PlacedReplica]) -> str:
    return ", ".join(sorted({one.app for one in replicas}))


def node_named(name: str, nodes: Sequence[ClusterNode], *, own: str) -> ClusterNode:
    """`own` is the node to which this process has joined. Raises `StartError`."""
    found = [node for node in nodes if name in (node.address, node.id, node.hostname)]
    if len(found) != 1:
        known = ", ".join(f"{node.address} ({node.hostname})" for node in nodes)
        raise StartError(f"{name}: {'several nodes are' if found else 'no node is'} called that: {known}")
    (node,) = found
    if node.is_head:
        raise StartError(f"{name} is Ray's head, without which there is no cluster")
    if node.id == own:
        raise StartError(
            f"{name} is the node of this command itself, which Ray would end: run it on another node"
        )
    return node


def of_pith() -> list[PlacedReplica]:
    return [one for one in placed_replicas() if is_of_pith(one.app)]


def see_off_clients(node: ClusterNode, within_s: float, say: Say) -> None:
    """Have the node's HTTP process take no more connections, and end when its requests have, if there is another."""
    ingresses = [one for one in of_pith() if is_ingress(one.app) and one.is_running]
    here = {one.app for one in ingresses if one.node_id == node.id}
    if not here:
        return
    if all(one.node_id == node.id for one in ingresses):
        say(f"{node.address}: has the only HTTP process; requests longer than server.drain_s are cut off")
        return
    say(f"{node.address}: its HTTP process takes no more connections")
    until = time.monotonic() + within_s
    for app in sorted(here):
        if not Retiring(asking(app, node.id), within_s=until - time.monotonic()).wait_for_requests():
            say(f"{node.address}: requests still run after {within_s:g} s, and are cut off")
            return


def wait_for_replacements(node: ClusterNode, within_s: float, say: Say) -> list[PlacedReplica]:
    """Until no replica is left there but those that no other node takes, or the time is over; returns these."""
    until, before = time.monotonic() + within_s, -1
    while True:
        placed = of_pith()
        left = [one for one in placed if one.node_id == node.id]
        others = {other.id for other in living_nodes()} - draining_nodes() - {node.id}
        if all(has_no_room(one, placed, others) for one in left) or time.monotonic() > until:
            return left
        if len(left) != before:
            before = len(left)
            say(f"{node.address}: replicas there: {before}")
        time.sleep(POLL_S)


def has_no_room(one: PlacedReplica, placed: Iterable[PlacedReplica], nodes: Collection[str]) -> bool:
    """True where as many of its deployment as may run on each of these nodes. One that starts there is waited for."""
    if not one.is_leaving or one.per_node is None:
        return False
    of_its_own = [other.node_id for other in placed if other.app == one.app and other.is_running]
    return all(of_its_own.count(node) >= one.per_node for node in nodes)
