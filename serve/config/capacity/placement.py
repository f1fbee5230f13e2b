"""The replicas that a configuration wants, and their places on the nodes of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from models.engine_kinds import ENGINE_KINDS
from serve.config.capacity.memory import (
    compressor_gb,
    engine_on_cpus,
    engine_on_gpus,
    engines_in_turns,
    retrieval_gb,
)
from serve.config.chat_models import ModelSettings
from serve.config.compression_models import CompressionModelSettings
from serve.config.retrieval_models import RetrievalModelSettings
from serve.config.settings import Settings
from serve.config.turns import EngineGroup
from serve.config.values import Node, ReplicaCounts


@dataclass(frozen=True, slots=True)
class Bundle:
    """Resources on one machine, taken together. `gpus` is a whole number, or a part of one GPU."""

    cpus: float = 0.0
    gpus: float = 0.0


@dataclass(frozen=True, slots=True)
class Need:
    """Gigabytes of one replica: on each GPU that it has, and in its machine's memory. `trouble`: why it cannot run.
    `engines`: those that it has on each GPU."""

    gpu_gb: float = 0.0
    memory_gb: float = 0.0
    note: str = ""
    trouble: str = ""
    engines: int = 1


@dataclass(frozen=True, slots=True)
class Demand:
    """One application. `kept` replicas are up from the start; `need` is asked with a GPU's gigabytes (0 for none)."""

    name: str
    kept: int
    bundles: tuple[Bundle, ...]
    need: Callable[[float], Need]
    strategy: str = "PACK"
    gpu_type: str | None = None
    # How many there may ever be; how many on one node of a cluster, as far as the configuration says; and whether Ray
    # Serve can keep such a bound, which it has none of for placement groups.
    most: int = 1
    per_node: int | None = None
    takes_bound: bool = True


def demands_of(settings: Settings) -> list[Demand]:
    """In the order in which they are started."""
    ingress = Demand(
        "ingress",
        settings.server.ingress_replicas,
        (Bundle(cpus=1),),
        lambda _: Need(memory_gb=0.16),
        most=settings.server.ingress_replicas,
    )
    return [
        *(_engine(group, len(settings.adapters_of(group.first.id))) for group in settings.engine_groups),
        *(_compressor(model) for model in settings.compression.models),
        *(_retrieval(model) for model in settings.retrieval_models if not model.is_hosted),
        ingress,
    ]


def worker_bundle(model: ModelSettings) -> dict[str, float]:
    """The resources of each worker of an engine, as given to Ray Serve LLM."""
    return {"GPU": model.accelerator.share} if model.accelerator.kind == "gpu" else {"CPU": 1}


def workers_of(model: ModelSettings) -> int:
    """Number of an engine's workers, each with its `worker_bundle`."""
    return (model.engine.tensor_parallel_size or 1) * (model.engine.pipeline_parallel_size or 1)


def placement_group(model: ModelSettings) -> dict[str, Any]:
    """Ray Serve's options for where a replica and its engine's workers go. They are those of
    `LLMServer.get_deployment_options`, which takes an import of vLLM: `tests/serve/cluster/test_nodes.py`
    compares them."""
    worker = dict(worker_bundle(model))
    if model.accelerator.type:
        worker[f"accelerator_type:{model.accelerator.type}"] = 0.001
    # The replica's own process goes with its first worker.
    first = {"GPU": 0.0, **worker, "CPU": worker.get("CPU", 0) + 1}
    return {
        "placement_group_bundles": [first, *(worker for _ in range(workers_of(model) - 1))],
        "placement_group_strategy": model.replicas.placement_strategy or "PACK",
    }


def _engine(group: EngineGroup, adapters: int) -> Demand:
    model = group.first
    accelerator, replicas = model.accelerator, model.replicas
    asked = worker_bundle(model)
    # The replica's own process goes with its first worker.
    bundles = [
        Bundle(cpus=asked.get("CPU", 0.0) + (1.0 if number == 0 else 0.0), gpus=asked.get("GPU", 0.0))
        for number in range(workers_of(model))
    ]
    strategy = replicas.placement_strategy or "PACK"
    return Demand(
        f"model:{group.name}",
        replicas.min,
        tuple(bundles),
        partial(_need_in_turns, group) if group.turns else lambda gb: _engine_need(model, gb, adapters),
        strategy,
        accelerator.type,
        replicas.max,
        replicas.per_node,
        takes_bound=ENGINE_KINDS[model.engine.kind].module is not None and len(bundles) == 1,
    )


def _engine_need(model: ModelSettings, gpu_gb: float, adapters: int) -> Need:
    on_gpus = model.accelerator.kind == "gpu"
    taken = partial(engine_on_gpus, gpu_gb=gpu_gb) if on_gpus else engine_on_cpus
    found = taken(model, adapters=adapters)
    note = (
        f"weights {found.weights_gb:.1f} + activations {found.activations_gb:.1f} "
        + (f"+ adapters {found.adapters_gb:.1f} " if adapters else "")
        + f"+ KV {max(0, found.cache_gb):.1f} GB: {found.tokens:,} tokens, {found.requests:.1f} full requests"
    )
    trouble = ""
    if found.requests < 1:
        trouble = (
            f"its KV cache holds {found.tokens:,} tokens, and context_length is {model.context_length:,}"
        )
    if on_gpus:
        return Need(gpu_gb=found.reserved_gb, note=note, trouble=trouble)
    return Need(memory_gb=found.reserved_gb, note=note, trouble=trouble)


def _need_in_turns(group: EngineGroup, gpu_gb: float) -> Need:
    needs = {model.id: _engine_need(model, gpu_gb, 0) for model in group.models}
    most_gb, weights_gb = engines_in_turns(group.models, gpu_gb)
    trouble = "; ".join(f"{model}: {need.trouble}" for model, need in needs.items() if need.trouble)
    asleep = f"one awake, {most_gb:.1f} GB of each GPU at most, with the others asleep"
    note = f"{asleep}; {weights_gb:.1f} GB of weights in the machine's memory"
    return Need(most_gb, weights_gb, note, trouble, engines=len(needs))


def _compressor(model: CompressionModelSettings) -> Demand:
    share = model.replicas.gpus
    on_gpu = model.device != "cpu"
    app, bundle = f"compress:{model.id}", Bundle(cpus=1, gpus=share)
    return _network(app, model.replicas, bundle, lambda _: compressor_gb(model), share if on_gpu else None)


def _retrieval(model: RetrievalModelSettings) -> Demand:
    accelerator = model.accelerator
    share = accelerator.share if accelerator.kind == "gpu" else None
    app, bundle = f"retrieval:{model.id}", Bundle(cpus=1, gpus=share or 0)
    taken = partial(retrieval_gb, model)
    return _network(app, model.replicas, bundle, taken, share, gpu_type=accelerator.type)


def _network(
    app: str,
    replicas: ReplicaCounts,
    bundle: Bundle,
    taken: Callable[[float], float],
    share: float | None,
    *,
    gpu_type: str | None = None,
) -> Demand:
    """Replicas that are one process each. `taken`: gigabytes of one, by those of its GPU; `share`: its part of that;
    None: it runs on CPUs."""

    def need(gpu_gb: float) -> Need:
        taken_gb = taken(gpu_gb)
        if share is None:
            return Need(memory_gb=taken_gb)
        share_gb = share * gpu_gb
        trouble = (
            f"it takes {taken_gb:.1f} GB, and its share is {share_gb:.1f}" if taken_gb > share_gb else ""
        )
        return Need(gpu_gb=taken_gb, note=f"{taken_gb:.1f} of {share_gb:.1f} GB", trouble=trouble)

    most, per_node = replicas.max, replicas.per_node
    return Demand(app, replicas.min, (bundle,), need, gpu_type=gpu_type, most=most, per_node=per_node)


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
