"""Of Ray's drain and Serve's details: what `cluster_nodes` relies on is in the pinned version, as its source says."""

from __future__ import annotations

from serve.cluster.ray_insides.cluster_nodes import HEAD, REASON
from tests.vendor_source import text

STATES = "ray.serve._private.deployment_state"


def test_rays_own_command_drains_by_the_same_call() -> None:
    command = text("ray.scripts.scripts", "drain_node")
    assert "gcs_client = ray._raylet.GcsClient(address=address)" in command
    assert "is_accepted, rejection_error_message = gcs_client.drain_node(node_id, " in command
    assert "autoscaler_pb2.DrainNodeReason.Value(reason), reason_message, deadline_timestamp_ms)" in command
    # No deadline is 0, and others are in milliseconds.
    assert "deadline_timestamp_ms = 0\n" in command and "time.time_ns() // 1000000" in command
    # The others are refused where something runs on the node.
    assert REASON == "DRAIN_NODE_REASON_PREEMPTION"


def test_the_head_has_a_resource_that_tells_it() -> None:
    assert text("ray._common.constants", "HEAD_NODE_RESOURCE_NAME").endswith(
        f"'{HEAD.removeprefix('node:')}'"
    )


def test_serve_starts_another_replica_before_it_stops_one_on_a_node_that_is_drained() -> None:
    migrate = text(STATES, "migrate_replicas_on_draining_nodes")
    assert "self._replicas.add(ReplicaState.PENDING_MIGRATION, replica)" in migrate
    assert "num_running + num_draining - self._target_state.target_num_replicas" in migrate
    chosen = text(STATES, "_partition_groups_to_stop")
    assert "if curr_timestamp_ms >= effective_deadline - timeout_ms:" in chosen
    cache = text("ray.serve._private.cluster_node_info_cache", "ClusterNodeInfoCache.update")
    assert "deadline if deadline != 0 else _DRAINING_NODE_NO_DEADLINE" in cache


def test_serve_tells_where_replicas_are_and_how_many_a_node_may_have() -> None:
    assert "node_id" in text("ray.serve.schema", "ServeActorDetails")
    assert "state: ReplicaState" in text("ray.serve.schema", "ReplicaDetails")
    assert "schema.max_replicas_per_node = " in text("ray.serve.schema", "_deployment_info_to_schema")
    details = text("ray.serve._private.client", "ServeControllerClient.get_serve_details")
    assert "self._controller.get_serve_instance_details.remote()" in details
