"""How many replicas of a deployment a node of a cluster may have, from what the nodes have."""

from __future__ import annotations

from typing import Any

import pytest

from serve.cluster.deployments.spread import fewest_per_node, needs_of, rooms, spread_over_nodes

CPUS = {"num_cpus": 2, "runtime_env": {}}
GPUS = {"num_cpus": 1, "num_gpus": 0.5, "accelerator_type": "H100"}


def node(alive: bool = True, **resources: float) -> dict[str, Any]:
    return {"Alive": alive, "Resources": resources}


@pytest.mark.parametrize(
    ("most", "found", "fewest"),
    [
        (2, [8, 8], 1),
        (1, [8, 8], 1),
        (3, [8, 8], 2),
        (4, [8, 8, 8], 2),
        # The second node has no more room, and a head has none.
        (4, [8, 1], 3),
        (2, [0, 8, 8], 1),
        # More nodes may come.
        (2, [1], None),
        (2, [], None),
    ],
)
def test_as_few_replicas_on_a_node_as_hold_all_of_them(
    most: int, found: list[int], fewest: int | None
) -> None:
    assert fewest_per_node(most, found) == fewest


def test_the_room_of_a_node_is_what_it_has_of_the_scarcest() -> None:
    h100 = {"accelerator_type:H100": 1.0}
    nodes = [
        node(CPU=16, GPU=2, **h100),
        node(CPU=3, GPU=2, **h100),
        node(CPU=16, GPU=2),
        node(CPU=16),
        node(alive=False),
    ]
    assert rooms(needs_of(GPUS), nodes) == [4, 3, 0, 0]
    assert rooms(needs_of(CPUS), nodes) == [8, 1, 8, 8]


def test_without_a_cluster_nothing_is_asked_of_ray() -> None:
    assert spread_over_nodes(2, CPUS, per_node=1, in_cluster=False) == {}
    assert spread_over_nodes(2, CPUS, per_node=1, in_cluster=True) == {}
