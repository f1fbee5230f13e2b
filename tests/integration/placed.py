"""Tells Ray of a machine's GPUs and places every application of a configuration, as the server would.

    python -m tests.integration.placed configs/cpu.yaml configs/gpu.yaml

A placement group asks for what a replica asks for (CPUs, GPUs, bundles). All that is up from the start is placed
together, and beside it what starts on a request: together what `pith config check` says fits, and then by itself what
it says fits when others are idle. Prints a JSON object of each file: its applications, and true for a place.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group

from serve.cluster.deployments.pooled import build_compressor, build_retrieval_model
from serve.cluster.deployments.vllm_chat import build_models
from serve.cluster.ray_insides.ray_serve import RAY_ENVIRONMENT
from serve.config.capacity.fit import check_fit
from serve.config.settings import Settings, load_settings
from serve.config.values import Node, parse_node

DEADLINE_S = 60.0


@dataclass(frozen=True)
class Demand:
    """Of one application: bundles of a replica, how they are spread, and how many replicas there are at the start."""

    bundles: list[dict[str, float]]
    strategy: str
    first: int

    def group(self) -> PlacementGroup:
        return placement_group(self.bundles, self.strategy)


def bundles(application: Any) -> tuple[list[dict[str, float]], str]:
    """What a replica of a built application asks Ray for, and how it is spread."""
    config = application._bound_deployment._replica_config
    if config.placement_group_bundles:
        return config.placement_group_bundles, config.placement_group_strategy or "PACK"
    options = config.ray_actor_options
    asked = {"CPU": options.get("num_cpus", 1), "GPU": options.get("num_gpus", 0)}
    if kind := options.get("accelerator_type"):
        # As much as Ray asks for.
        asked[f"accelerator_type:{kind}"] = 0.001
    return [{kind: amount for kind, amount in asked.items() if amount}], "PACK"


def demands(settings: Settings) -> dict[str, Demand]:
    """By application."""
    built = {
        f"model:{group.name}": (
            build_models(group, settings, checkpoints={model.id: model.checkpoint for model in group.models}),
            group.first.replicas.min,
        )
        for group in settings.engine_groups
    }
    for compressor in settings.compression.models:
        found = build_compressor(compressor, settings)
        built[f"compress:{compressor.id}"] = found, compressor.replicas.min
    for model in settings.retrieval_models:
        if not model.is_hosted:
            built[f"retrieval:{model.id}"] = build_retrieval_model(model, settings), model.replicas.min
    asked = {name: Demand(*bundles(application), first=first) for name, (application, first) in built.items()}
    return {**asked, "ingress": Demand([{"CPU": 1.0}], "PACK", settings.server.ingress_replicas)}


def placed(settings: Settings, node: Node, folder: Path) -> dict[str, bool]:
    kinds = {f"accelerator_type:{node.gpu_type}": 1.0} if node.gpu_type else {}
    ray.init(
        num_cpus=settings.ray.logical_cpus,
        num_gpus=node.gpus,
        resources=kinds,
        include_dashboard=False,
        log_to_driver=False,
        _temp_dir=str(folder),
    )
    asked = demands(settings)
    at_start = {name: [demand.group() for _ in range(demand.first)] for name, demand in asked.items()}
    found = {name: all(group.wait(DEADLINE_S) for group in groups) for name, groups in at_start.items()}
    by_itself = {verdict.application for verdict in check_fit(settings, [node]) if verdict.waits}
    on_demand = {name: demand for name, demand in asked.items() if not demand.first}
    together = {name: demand.group() for name, demand in on_demand.items() if name not in by_itself}
    found |= {name: group.wait(DEADLINE_S) for name, group in together.items()}
    for group in together.values():
        remove_placement_group(group)
    for name in by_itself:
        group = on_demand[name].group()
        found[name] = group.wait(DEADLINE_S)
        remove_placement_group(group)
    return found


def main() -> None:
    import os

    os.environ.update({**RAY_ENVIRONMENT, "RAY_AUTH_MODE": "disabled"})
    for path in sys.argv[1:]:
        settings = load_settings(Path(path))
        with tempfile.TemporaryDirectory(prefix="placed-", dir="/tmp") as folder:
            try:
                print(json.dumps(placed(settings, parse_node(settings.nodes[0]), Path(folder))))
            finally:
                ray.shutdown()


if __name__ == "__main__":
    main()
