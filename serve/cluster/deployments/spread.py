"""How replicas are spread over the nodes of a cluster: so many of each application on each at most.

Left to itself, Ray Serve asks Ray for its strategy SPREAD, which is a wish: two replicas were seen on one node of two.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import ray

from serve.cluster.ray_insides.cluster_nodes import usable_nodes
from serve.config.capacity.demand import demands_of
from serve.config.capacity.spread import bounds_of
from serve.config.settings import Settings
from serve.config.values.node import Node

KIND = "accelerator_type:"


def spread_over_nodes(settings: Settings) -> dict[str, int]:
    """By application, how many of its replicas a node may have. A cluster of our own is one machine."""
    if not settings.ray.address or not ray.is_initialized():
        return {}
    return bounds_of(demands_of(settings), nodes_of(usable_nodes()), cpus=0)


def nodes_of(found: Iterable[Mapping[str, Any]]) -> list[Node]:
    """Those that can have a replica, with what Ray may give of each."""
    resources = [node["Resources"] for node in found]
    return [
        Node(
            gpus=int(each.get("GPU", 0)),
            gpu_type=next((name.removeprefix(KIND) for name in each if name.startswith(KIND)), None),
            cpus=int(each["CPU"]),
        )
        for each in resources
        if each.get("CPU", 0) >= 1
    ]


def at_most(per_node: int | None) -> dict[str, int]:
    """Ray Serve's option for so many replicas of a deployment on a node; None: any number."""
    return {} if per_node is None else {"max_replicas_per_node": per_node}
