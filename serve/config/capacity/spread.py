"""Bounds on the replicas of an application on one node of a cluster: as few as hold all of them.

Ray keeps such a bound strictly, and places everything else where it likes. So there is none where the others could take
the room of its share on a node: a replica would wait for ever beside nodes that are free.
"""

from collections.abc import Mapping, Sequence

from serve.config.capacity.demand import Bundle, Demand
from serve.config.capacity.placement import Cluster
from serve.config.values import Node

# Ray Serve takes no larger number.
MOST_PER_NODE = 100


def bounds_of(demands: Sequence[Demand], nodes: Sequence[Node], *, cpus: int) -> dict[str, int]:
    """By application, where it has a bound. What the configuration says (`per_node`) always holds. `cpus` are those of
    a node that did not say."""
    bounds = {
        demand.name: bound
        for demand in demands
        if demand.takes_bound and (bound := demand.per_node or _fewest(demand, nodes, cpus))
    }
    while True:
        unsafe = [
            demand.name
            for demand in demands
            if demand.name in bounds
            and demand.per_node is None
            and any(_may_lack(demand, demands, bounds, node, cpus) for node in nodes)
        ]
        if not unsafe:
            return bounds
        for name in unsafe:
            del bounds[name]


def _fewest(demand: Demand, nodes: Sequence[Node], cpus: int) -> int | None:
    """With how many on each node at most there is room for all; None where there is not: nodes may join later."""
    (bundle,) = demand.bundles
    most = max(demand.kept, demand.most)
    rooms = [_room(bundle, demand.gpu_type, node, cpus, most) for node in nodes]
    return next(
        (
            each
            for each in range(1, min(most, MOST_PER_NODE) + 1)
            if sum(min(each, room) for room in rooms) >= most
        ),
        None,
    )


def _may_lack(
    demand: Demand, demands: Sequence[Demand], bounds: Mapping[str, int], node: Node, cpus: int
) -> bool:
    """Whether its share of the node may not fit there, with the most that all others may have there."""
    (bundle,) = demand.bundles
    if not _room(bundle, demand.gpu_type, node, cpus, 1):
        return False
    taken = [_most_taken(each, bounds.get(each.name, each.kept), node, cpus) for each in demands]
    lacks_cpus = sum(used.cpus for used in taken) > (node.cpus or cpus)
    return lacks_cpus or (bundle.gpus > 0 and sum(used.gpus for used in taken) > node.gpus + 1e-6)


def _most_taken(demand: Demand, bound: int, node: Node, cpus: int) -> Bundle:
    counted = [
        (bundle, _room(bundle, demand.gpu_type, node, cpus, min(bound, demand.kept)))
        for bundle in demand.bundles
    ]
    return Bundle(
        sum(number * bundle.cpus for bundle, number in counted),
        sum(number * _with_rest(bundle.gpus) for bundle, number in counted),
    )


def _with_rest(gpus: float) -> float:
    """A part of a GPU, with what is left of it when as many such parts as possible are on it."""
    return 1 / int(1 / gpus + 1e-6) if 0 < gpus < 1 else gpus


def _room(bundle: Bundle, gpu_type: str | None, node: Node, cpus: int, most: int) -> int:
    """How many of them the node could have, were it empty; `most` is enough."""
    empty = Cluster.of([node], cpus=cpus)
    found = 0
    while found < most and empty.place([bundle], gpu_type=gpu_type) is not None:
        found += 1
    return found
