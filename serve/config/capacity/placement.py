"""Placement of what a configuration asks for, by Ray's rules: a bundle on one machine, a part of a GPU on one.

Ray takes whole GPUs of which no part is taken, and a part from the fullest GPU that has room for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field

from serve.config.capacity.demand import Bundle, Demand
from serve.config.values import Node

# Ray counts in ten-thousandths.
_UNITS = 10_000
# Ray Serve takes no larger number.
MOST_PER_NODE = 100


@dataclass(frozen=True, slots=True)
class Place:
    """A machine, and its GPUs that a bundle has, whole or a part."""

    node: int
    gpus: tuple[int, ...]


@dataclass(slots=True)
class NodeResources:
    """Rest of a machine, in ten-thousandths."""

    cpus: int
    gpus: list[int]
    gpu_type: str | None

    def take(self, bundle: Bundle) -> tuple[int, ...] | None:
        """The GPUs that the bundle got; None, and nothing is taken, where it does not fit."""
        cpus, gpus = round(bundle.cpus * _UNITS), round(bundle.gpus * _UNITS)
        found = self._gpus(gpus)
        if cpus > self.cpus or found is None:
            return None
        self.cpus -= cpus
        for gpu in found:
            self.gpus[gpu] -= min(gpus, _UNITS)
        return found

    def _gpus(self, wanted: int) -> tuple[int, ...] | None:
        if wanted == 0:
            return ()
        if wanted < _UNITS:
            fitting = [gpu for gpu, left in enumerate(self.gpus) if left >= wanted]
            return (min(fitting, key=lambda gpu: self.gpus[gpu]),) if fitting else None
        free = [gpu for gpu, left in enumerate(self.gpus) if left == _UNITS]
        whole = wanted // _UNITS
        return tuple(free[:whole]) if len(free) >= whole and wanted % _UNITS == 0 else None


@dataclass(slots=True)
class Cluster:
    """All machines, as they fill up."""

    nodes: list[NodeResources] = field(default_factory=list)

    @classmethod
    def of(cls, nodes: Sequence[Node], *, cpus: int) -> Cluster:
        """Empty machines; `cpus` are those of one that did not say."""
        return cls(
            [
                NodeResources((node.cpus or cpus) * _UNITS, [_UNITS] * node.gpus, node.gpu_type)
                for node in nodes
            ]
        )

    def place(
        self,
        bundles: Sequence[Bundle],
        *,
        strategy: str = "PACK",
        gpu_type: str | None = None,
        beside: Sequence[int] = (),
        per_node: int | None = None,
    ) -> list[Place] | None:
        """A place for each bundle, all or none (a placement group). `beside`: where the replicas before it are, since
        on a cluster each node gets its share; of them a node has at most `per_node`."""
        allowed = [
            index for index in range(len(self.nodes)) if per_node is None or beside.count(index) < per_node
        ]
        if strategy in ("PACK", "STRICT_PACK"):
            for index in sorted(allowed, key=beside.count):
                if (found := self._try(bundles, [index], gpu_type)) is not None:
                    return found
            if strategy == "STRICT_PACK":
                return None
        return self._try(
            bundles,
            allowed,
            gpu_type,
            apart=strategy == "STRICT_SPREAD",
            turns=strategy in ("SPREAD", "STRICT_SPREAD"),
        )

    def _try(
        self,
        bundles: Sequence[Bundle],
        allowed: Sequence[int],
        gpu_type: str | None,
        *,
        apart: bool = False,
        turns: bool = False,
    ) -> list[Place] | None:
        nodes = deepcopy(self.nodes)
        places: list[Place] = []
        for bundle in bundles:
            place = self._place_one(nodes, bundle, allowed, gpu_type, places if turns else [], apart=apart)
            if place is None:
                return None
            places.append(place)
        self.nodes = nodes
        return places

    def _place_one(
        self,
        nodes: list[NodeResources],
        bundle: Bundle,
        allowed: Sequence[int],
        gpu_type: str | None,
        before: Sequence[Place],
        *,
        apart: bool,
    ) -> Place | None:
        used = [place.node for place in before]
        for index in sorted(allowed, key=used.count):
            if apart and index in used:
                continue
            if bundle.gpus and gpu_type is not None and nodes[index].gpu_type != gpu_type:
                continue
            if (gpus := nodes[index].take(bundle)) is not None:
                return Place(index, gpus)
        return None


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
