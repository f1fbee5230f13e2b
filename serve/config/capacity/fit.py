"""Fit of a configuration on given machines: a place for every application, and memory there."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field

from serve.config.capacity.memory import SERVER_PROCESSES_GB, UnknownSize
from serve.config.capacity.placement import Cluster, Demand, Need, Place, bounds_of, demands_of
from serve.config.settings import Settings
from serve.config.values import Node

# Of a GPU's memory, for all that share it: contexts of CUDA and what allocators leave unused are in no process's part.
MOST_SHARED = 0.93


@dataclass(frozen=True, slots=True)
class Verdict:
    """One replica of an application. `trouble` is empty where it fits."""

    application: str
    started: str
    where: str
    memory: str
    trouble: str = ""
    # It fits next to what is always kept running, but not if everything else is started too.
    waits: bool = False

    @property
    def fits(self) -> bool:
        return not self.trouble


@dataclass(slots=True)
class _Machines:
    nodes: Sequence[Node]
    cluster: Cluster
    gpu_gb: defaultdict[tuple[int, int], float] = field(default_factory=lambda: defaultdict(float))
    tenants: Counter[tuple[int, int]] = field(default_factory=Counter)
    memory_gb: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))
    # By application.
    homes: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    bounds: Mapping[str, int] = field(default_factory=dict)

    def put(self, demand: Demand) -> tuple[list[Place], Need, str]:
        """Take a place for one replica, and say what is wrong with it."""
        homes, bound = self.homes[demand.name], self.bounds.get(demand.name)
        places = self.cluster.place(
            demand.bundles,
            strategy=demand.strategy,
            gpu_type=demand.gpu_type,
            beside=homes,
            per_node=bound,
        )
        if places is None:
            return [], Need(), _asked(demand, bound)
        homes.append(places[0].node)
        on_gpu = any(place.gpus for place in places)
        try:
            need = demand.need(self.nodes[places[0].node].gpu_gb if on_gpu else 0.0)
        except UnknownSize as unknown:
            return places, Need(), str(unknown)
        return places, need, need.trouble or self._spend(places, need)

    def _spend(self, places: list[Place], need: Need) -> str:
        node = places[0].node
        self.memory_gb[node] += need.memory_gb
        limit_gb = self.nodes[node].memory_gb
        if limit_gb is not None and self.memory_gb[node] > limit_gb:
            return f"memory: {self.memory_gb[node]:.1f} GB with what is there already, of {limit_gb:.0f}"
        for place in places:
            for gpu in place.gpus:
                self.gpu_gb[place.node, gpu] += need.gpu_gb
                self.tenants[place.node, gpu] += need.engines
                taken_gb, has_gb = self.gpu_gb[place.node, gpu], self.nodes[place.node].gpu_gb
                if self.tenants[place.node, gpu] > 1:
                    has_gb *= MOST_SHARED
                if taken_gb > has_gb:
                    return f"GPU {gpu}: {taken_gb:.1f} GB with what is there already, of {has_gb:.0f}"
        return ""


def check_fit(settings: Settings, nodes: Sequence[Node]) -> list[Verdict]:
    """Verdicts on what is kept up, then on what starts on a request, all of it together. Raises `ValueError`."""
    if len(nodes) > 1 and settings.ray.address is None:
        raise ValueError("without ray.address a server is on one machine")
    # A cluster of its own counts the CPUs that the file says, whatever the machine has.
    counted = nodes if settings.ray.address else [Node(n.gpus, n.gpu_type, n.gpu_gb) for n in nodes]
    machines = _Machines(nodes, Cluster.of(counted, cpus=settings.ray.logical_cpus))
    machines.memory_gb[0] = SERVER_PROCESSES_GB
    demands = demands_of(settings)
    if settings.ray.address:
        machines.bounds = bounds_of(demands, counted, cpus=settings.ray.logical_cpus)
    verdicts = [_verdict(machines, demand, "at the start") for demand in demands for _ in range(demand.kept)]
    kept = deepcopy(machines)
    return verdicts + [_on_demand(machines, kept, demand) for demand in demands if demand.kept == 0]


def without_a_place(settings: Settings, node: Node) -> list[str]:
    """Applications that are kept up and find no place on this one machine: each with what it asks for."""
    cluster = Cluster.of([node], cpus=settings.ray.logical_cpus)
    return [
        f"{demand.name} has {_asked(demand, None)}"
        for demand in demands_of(settings)
        for _ in range(demand.kept)
        if cluster.place(demand.bundles, strategy=demand.strategy, gpu_type=demand.gpu_type) is None
    ]


def _on_demand(machines: _Machines, kept: _Machines, demand: Demand) -> Verdict:
    if _verdict(deepcopy(machines), demand, "on demand").fits:
        return _verdict(machines, demand, "on demand")
    alone = _verdict(deepcopy(kept), demand, "on demand")
    return Verdict(
        alone.application, alone.started, alone.where, alone.memory, alone.trouble, waits=alone.fits
    )


def _verdict(machines: _Machines, demand: Demand, started: str) -> Verdict:
    places, need, trouble = machines.put(demand)
    memory = need.note or (f"{need.memory_gb:.1f} GB" if need.memory_gb else "")
    return Verdict(demand.name, started, _where(places, len(machines.nodes)), memory, trouble)


def _where(places: Sequence[Place], nodes: int) -> str:
    texts = []
    for node in dict.fromkeys(place.node for place in places):
        gpus = sorted(gpu for place in places if place.node == node for gpu in place.gpus)
        name = f"node {node}" if nodes > 1 else ""
        texts.append(
            " ".join(part for part in (name, f"GPU {','.join(map(str, gpus))}" if gpus else "") if part)
        )
    return "; ".join(text or "CPU" for text in texts)


def _asked(demand: Demand, bound: int | None) -> str:
    gpus = [bundle.gpus for bundle in demand.bundles]
    asked = f"{len(gpus)} x {gpus[0]:g} GPU" if gpus[0] else f"{sum(b.cpus for b in demand.bundles):g} CPU"
    kind = f" of type {demand.gpu_type}" if demand.gpu_type else ""
    at_most = f", at most {bound} on a node" if bound else ""
    return f"no place: it asks for {asked}{kind} ({demand.strategy}{at_most}), which is not free"
