"""Nodes of a Ray cluster that are drained, and which replicas of Ray Serve are where.

`GcsClient.drain_node` is what Ray's own command `ray drain-node` calls, which takes ids alone and is hidden. Ray places
nothing on a node that is being drained; Serve's controller starts a replica elsewhere for each that is there, and
stops the one when the other runs, or `graceful_shutdown_timeout_s` before a deadline, where there is one. Ray's
processes there end by themselves when nothing runs there any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

REASON = "DRAIN_NODE_REASON_PREEMPTION"
# What the head's node has of a resource that no other has.
HEAD = "node:__internal_head__"


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """One that lives."""

    id: str
    address: str
    hostname: str
    is_head: bool


@dataclass(frozen=True, slots=True)
class PlacedReplica:
    """`is_leaving`: on a node that is drained, while it waits for another one in its place. `per_node`: how many of its
    deployment a node may have; None: any number."""

    app: str
    node_id: str | None
    is_running: bool = False
    is_leaving: bool = False
    per_node: int | None = None


def living_nodes() -> list[ClusterNode]:
    import ray

    return [
        ClusterNode(
            node["NodeID"], node["NodeManagerAddress"], node["NodeManagerHostname"], HEAD in node["Resources"]
        )
        for node in ray.nodes()
        if node["Alive"]
    ]


def usable_nodes() -> list[Mapping[str, Any]]:
    """Those on which Ray places something, as `ray.nodes` gives them."""
    import ray

    draining = draining_nodes()
    return [node for node in ray.nodes() if node["Alive"] and node["NodeID"] not in draining]


def begin_drain(node_id: str, why: str, *, deadline_ms: int = 0) -> None:
    """Once more with another deadline (milliseconds since 1970; 0: none), that one counts. Raises `RuntimeError`."""
    from ray.core.generated.autoscaler_pb2 import DrainNodeReason

    accepted, reason = _gcs().drain_node(node_id, DrainNodeReason.Value(REASON), why, deadline_ms)
    if not accepted:
        raise RuntimeError(f"Ray does not drain it: {reason}")


def draining_nodes() -> set[str]:
    """The ids of those that are being drained."""
    return set(_gcs().get_draining_nodes())


def _gcs() -> Any:
    import ray
    from ray._raylet import GcsClient  # type: ignore[attr-defined]

    return GcsClient(address=ray.get_runtime_context().gcs_address)


def placed_replicas() -> list[PlacedReplica]:
    """All of Ray Serve, as its controller has them (`ServeInstanceDetails`)."""
    from ray.serve.context import _get_global_client

    client = _get_global_client(raise_if_no_controller_running=False)
    applications = client.get_serve_details()["applications"] if client is not None else {}
    return [
        PlacedReplica(
            app,
            replica.get("node_id"),
            is_running=replica["state"] == "RUNNING",
            is_leaving=replica["state"] == "PENDING_MIGRATION",
            per_node=deployment["deployment_config"].get("max_replicas_per_node"),
        )
        for app, application in applications.items()
        for deployment in application["deployments"].values()
        for replica in deployment["replicas"]
    ]
