"""How many replicas of a deployment a node of a cluster may have, from what the nodes have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from serve.cluster.deployments.deployment_options import at_most
from serve.cluster.nodes import nodes_of, spread_over_nodes
from serve.config.capacity.placement import Bundle, Demand, Need, bounds_of
from serve.config.settings import Settings
from serve.config.values import Node, parse_node
from tests.serve.served import settings_document

H100 = "8xH100-80GB,cpu:64"


def app(name: str = "m", *, kept: int = 2, cpus: float = 1, gpus: float = 0, **more: Any) -> Demand:
    bundles = more.pop("bundles", (Bundle(cpus, gpus),))
    return Demand(name, kept, bundles, lambda gpu_gb: Need(), **{"most": kept, **more})


def bounds(demands: list[Demand], *nodes: str) -> dict[str, int]:
    return bounds_of(demands, [parse_node(node) for node in nodes], cpus=0)


@pytest.mark.parametrize(
    ("most", "nodes", "fewest"),
    [
        (2, ["cpu:8", "cpu:8"], 1),
        (1, ["cpu:8", "cpu:8"], 1),
        (3, ["cpu:8", "cpu:8"], 2),
        (4, ["cpu:8", "cpu:8", "cpu:8"], 2),
        # The second node has no more room.
        (4, ["cpu:8", "cpu:1"], 3),
        # More nodes may come.
        (2, ["cpu:1"], None),
        (2, [], None),
    ],
)
def test_as_few_replicas_on_a_node_as_hold_all_of_them(
    most: int, nodes: list[str], fewest: int | None
) -> None:
    assert bounds([app(kept=1, most=most)], *nodes).get("m") == fewest


def test_the_room_of_a_node_is_what_it_has_of_the_scarcest_and_of_the_right_kind() -> None:
    halves = app(kept=1, most=5, gpus=0.5, gpu_type="H100")
    assert bounds([halves], "2xH100-80GB,cpu:16", "2xH100-80GB,cpu:1", "2xL4-24GB,cpu:16") == {"m": 4}


def test_there_is_no_bound_where_others_may_take_the_room_of_a_share() -> None:
    three = [app("a", cpus=2), app("b", cpus=2), app("ingress")]
    # The small node cannot have one of each.
    assert bounds(three, "cpu:2", "cpu:16") == {}
    assert bounds(three, "cpu:5", "cpu:16") == {"a": 1, "b": 1, "ingress": 1}
    # What has no bound itself may take all that it asks for from one node.
    free = app("vllm", cpus=2, bundles=(Bundle(2), Bundle(2)), takes_bound=False)
    assert bounds([free, *three], "cpu:12", "cpu:16") == {}
    assert bounds([free, *three], "cpu:13", "cpu:16") == {"a": 1, "b": 1, "ingress": 1}


def test_who_asks_for_no_gpu_keeps_its_bound_where_gpus_are_short() -> None:
    engines = app("vllm", bundles=(Bundle(1, 1), *(Bundle(0, 1),) * 7), takes_bound=False)
    demands = [engines, app("retrieval", gpus=0.5), app("ingress")]
    assert bounds(demands, H100, H100) == {"ingress": 1}


def test_parts_of_gpus_are_counted_with_what_they_leave_over() -> None:
    # Three of 0.6 fit no two GPUs, though they are 1.8 together.
    parts = [app("a", gpus=0.6), app("b", gpus=0.6), app("c", gpus=0.6)]
    two, three = "2xH100-80GB,cpu:64", "3xH100-80GB,cpu:64"
    assert bounds(parts, two, two) == {}
    assert bounds(parts, three, three) == {"a": 1, "b": 1, "c": 1}


def test_what_the_configuration_says_always_holds() -> None:
    assert bounds([app("a", cpus=2, per_node=1), app("b", cpus=2)], "cpu:2", "cpu:16") == {"a": 1}


def test_nodes_of_ray_without_cpus_have_no_replica() -> None:
    found = [
        {"Resources": {"CPU": 4.0, "GPU": 2.0, "accelerator_type:H100": 1.0}},
        {"Resources": {"node:__internal_head__": 1.0}},
        {"Resources": {"CPU": 8.0}},
    ]
    assert nodes_of(found) == [Node(2, "H100", cpus=4), Node(cpus=8)]


def test_without_a_cluster_nothing_is_asked_of_ray(tmp_path: Path) -> None:
    document = settings_document(tmp_path)
    assert spread_over_nodes(Settings.model_validate(document)) == {}
    document["ray"] = {"address": "auto"}
    document["billing"]["rate_limit_storage"] = "redis://limits"
    assert spread_over_nodes(Settings.model_validate(document)) == {}


def test_the_option_of_ray_serve() -> None:
    assert at_most(None) == {} and at_most(2) == {"max_replicas_per_node": 2}
