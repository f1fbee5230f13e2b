"""How the replicas of a deployment are spread over a cluster's nodes: so many on each at most, and no more than needed.

Left to itself, Ray Serve asks Ray for its strategy SPREAD, which is a wish: two replicas were seen on one node of two.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import ray

# Ray Serve takes no larger number.
MOST_PER_NODE = 100


def spread_over_nodes(
    most: int, actor_options: Mapping[str, Any], *, per_node: int | None, in_cluster: bool
) -> dict[str, Any]:
    """Ray Serve's option for `most` replicas that have these options each. `per_node` is what the configuration says.
    There is none for a cluster of our own, which is one machine, and none that would leave no room for all of them."""
    if not in_cluster or not ray.is_initialized():
        return {}
    fewest = per_node or fewest_per_node(most, rooms(needs_of(actor_options), ray.nodes()))
    return {"max_replicas_per_node": fewest} if fewest and fewest <= MOST_PER_NODE else {}


def fewest_per_node(most: int, rooms: Iterable[int]) -> int | None:
    """With how many on each node at most there is room for all; None where there is not: nodes may join later."""
    found = list(rooms)
    return next((each for each in range(1, most + 1) if sum(min(each, room) for room in found) >= most), None)


def needs_of(actor_options: Mapping[str, Any]) -> dict[str, float]:
    """What a replica takes of a node, under Ray's names."""
    needs = {"CPU": actor_options.get("num_cpus", 1), "GPU": actor_options.get("num_gpus", 0)}
    if kind := actor_options.get("accelerator_type"):
        needs[f"accelerator_type:{kind}"] = 0.001
    return {name: asked for name, asked in needs.items() if asked}


def rooms(needs: Mapping[str, float], nodes: Iterable[Mapping[str, Any]]) -> list[int]:
    """How many such replicas each node that lives could have, were it empty: `nodes` as `ray.nodes` gives them."""
    return [
        min(int(node["Resources"].get(name, 0) / asked + 1e-6) for name, asked in needs.items())
        for node in nodes
        if node["Alive"]
    ]
