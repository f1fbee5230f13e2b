"""Tells Ray of a machine's GPUs and places stand-ins for every application of a configuration, as the server would.

    python -m tests.integration.placed configs/cpu.yaml configs/gpu.yaml

A stand-in asks for what its application asks for (placement group, CPUs, GPUs) and does nothing. Every model is placed,
those that start on a request too. Prints a JSON object of each file: its applications and their status.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import ray
from ray import serve

from serve.cluster.deployments.pooled import build_compressor
from serve.cluster.deployments.vllm_chat import build_models
from serve.cluster.ray_insides.ray_serve import RAY_ENVIRONMENT
from serve.config.settings import Settings, load_settings
from serve.config.values import Node, parse_node

DEADLINE_S = 300.0


class StandIn:
    """Does nothing."""


def asked(application: Any) -> dict[str, Any]:
    """What a built application asks Ray for."""
    config = application._bound_deployment._replica_config
    options = {"num_cpus": config.ray_actor_options.get("num_cpus", 1)}
    if config.ray_actor_options.get("num_gpus"):
        options["num_gpus"] = config.ray_actor_options["num_gpus"]
    found: dict[str, Any] = {"ray_actor_options": options}
    if config.placement_group_bundles:
        found["placement_group_bundles"] = config.placement_group_bundles
        found["placement_group_strategy"] = config.placement_group_strategy
    return found


def demands(settings: Settings) -> dict[str, dict[str, Any]]:
    models = {
        f"model:{group.name}": asked(
            build_models(group, settings, checkpoints={model.id: model.checkpoint for model in group.models})
        )
        for group in settings.engine_groups
    }
    compressors = {
        f"compress:{model.id}": asked(build_compressor(model, settings))
        for model in settings.compression.models
    }
    ingress = {"ingress": {"num_replicas": settings.server.ingress_replicas}}
    return {**models, **compressors, **ingress}


def placed(settings: Settings, node: Node, folder: Path) -> dict[str, str]:
    kinds = {f"accelerator_type:{node.gpu_type}": 1.0} if node.gpu_type else {}
    ray.init(
        num_cpus=settings.ray.logical_cpus,
        num_gpus=node.gpus,
        resources=kinds,
        include_dashboard=False,
        log_to_driver=False,
        _temp_dir=str(folder),
    )
    serve.start(proxy_location="Disabled")
    wanted = demands(settings)
    for name, options in wanted.items():
        stand_in = serve.deployment(StandIn, name=name.replace(":", "-").replace("/", "-"), **options)
        serve._run(stand_in.bind(), name=name, route_prefix=None, _blocking=False)
    deadline = time.monotonic() + DEADLINE_S
    while True:
        states = {name: str(state.status.value) for name, state in serve.status().applications.items()}
        if all(states[name] == "RUNNING" for name in wanted) or time.monotonic() > deadline:
            return states
        time.sleep(0.2)


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
