"""`pith drain`: a node of the cluster is emptied without a failed request, by Ray's own drain."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence

from serve.cluster.checkpoints import StartError
from serve.cluster.joined import JoinedCluster, quiet_loggers
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

POLL_S = 0.25
ANSWER_S = 10.0
WHY = "pith drain"
Say = Callable[[str], None]


def drain_at(address: str, name: str, *, within_s: float, say: Say) -> None:
    """Join a cluster to drain the node of this address, host name or id. `within_s`: how long is waited for replicas
    elsewhere, before what has none ends without; and for requests of its HTTP process. Raises `StartError`."""
    os.environ.update(RAY_ENVIRONMENT)
    JoinedCluster(address, leaves=True).connect(RAY_ENVIRONMENT)
    from ray import serve  # noqa: F401

    quiet_loggers()
    import ray

    node = node_named(name, living_nodes(), own=ray.get_runtime_context().get_node_id())
    see_off_clients(node, within_s, say)
    begin_drain(node.id, WHY)
    say(f"{node.address}: gets no more work; its replicas are started elsewhere")
    left = wait_for_replacements(node, within_s, say)
    if left:
        say(
            f"{', '.join(sorted({one.app for one in left}))}: no room elsewhere; what they have been asked ends first"
        )
        begin_drain(node.id, WHY, deadline_ms=int(time.time() * 1000))
        while any(one.node_id == node.id for one in of_pith()):
            time.sleep(POLL_S)


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
    everyone = [Everyone(app) for app in here]
    while any(sum(left) for app in everyone for left in app.ask("retire", node.id, timeout_s=ANSWER_S)):
        if time.monotonic() > until:
            say(f"{node.address}: requests still run after {within_s:g} s, and are cut off")
            return
        time.sleep(POLL_S)


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
    """Whether as many of its deployment as may run on each of these nodes. One that starts there is waited for."""
    if not one.is_leaving or one.per_node is None:
        return False
    of_its_own = [other.node_id for other in placed if other.app == one.app and other.is_running]
    return all(of_its_own.count(node) >= one.per_node for node in nodes)
