"""Which node is drained, and when nothing more can be waited for, from values: the drain itself is Ray's."""

from __future__ import annotations

import pytest

from serve.cluster.checkpoints import StartError
from serve.cluster.drain import has_no_room, node_named
from serve.cluster.ray_insides.cluster_nodes import ClusterNode, PlacedReplica

HEAD = ClusterNode("h0", "10.0.0.1", "head", is_head=True)
ONE = ClusterNode("n1", "10.0.0.2", "one", is_head=False)
TWO = ClusterNode("n2", "10.0.0.3", "two", is_head=False)
NODES = (HEAD, ONE, TWO)
LEAVING = PlacedReplica("model:m", "n1", is_leaving=True, per_node=1)
ELSEWHERE = PlacedReplica("model:m", "h0", is_running=True, per_node=1)


@pytest.mark.parametrize("name", ["10.0.0.2", "one", "n1"])
def test_a_node_is_named_by_address_host_or_id(name: str) -> None:
    assert node_named(name, NODES, own="h0") == ONE


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("10.0.0.9", "no node is called that: 10.0.0.1 (head)"),
        ("head", "Ray's head"),
        ("two", "another node"),
    ],
)
def test_a_node_that_cannot_be_drained_is_refused(name: str, words: str) -> None:
    with pytest.raises(StartError) as caught:
        node_named(name, NODES, own="n2")
    assert words in str(caught.value)


def test_a_host_with_several_nodes_is_named_by_address() -> None:
    with pytest.raises(StartError, match="several nodes are called that"):
        node_named("one", (*NODES, ClusterNode("n3", "10.0.0.4", "one", is_head=False)), own="h0")


def test_a_replica_waits_while_another_node_may_have_one() -> None:
    placed = [LEAVING, ELSEWHERE]
    assert has_no_room(LEAVING, placed, {"h0"})
    assert not has_no_room(LEAVING, placed, {"h0", "n2"})
    # It starts.
    assert not has_no_room(LEAVING, [*placed, PlacedReplica("model:m", "n2", per_node=1)], {"h0", "n2"})
    # One that has begun to stop, or without a bound, is waited for.
    assert not has_no_room(PlacedReplica("model:m", "n1", per_node=1), placed, {"h0"})
    assert not has_no_room(PlacedReplica("model:m", "n1", is_leaving=True), placed, {"h0"})
