"""The applications of a configuration as Ray Serve takes them from a file, by import path.

For who deploys Serve's config files, such as KubeRay's RayService and `serve deploy`: `pith serve` deploys the same
applications from its own process.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from billing.usage import now
from serve.cluster.lineup import Run, checkpoints_of, first_lineup
from serve.cluster.progress import Progress
from serve.cluster.replicas.applications import INGRESS_APP, OPS_APP
from serve.config.paths import ConfigError
from serve.config.settings import Settings, load_anchored

Arguments = Mapping[str, str]


def build(arguments: Arguments) -> Any:
    """One application. `config`: the configuration file, on whichever node Serve asks; `app`: which of its
    applications, under the name that it has at Serve, by which the others find it. More arguments say nothing: a new
    one has Serve deploy the application anew.

    Raises `ConfigError`, and `StartError` where a checkpoint is not there.
    """
    settings, app = settings_of(arguments), arguments.get("app", "")
    if app == INGRESS_APP:
        return _ingress(settings)
    if app == OPS_APP:
        from serve.cluster.deployments.ops import build_ops

        return build_ops(settings)
    of_models = first_lineup(settings).places
    if app not in of_models:
        known = ", ".join((INGRESS_APP, OPS_APP, *of_models))
        raise ConfigError(f"args.app is {app!r}, which is none of {known}")
    progress = Progress()
    return Run(None, progress).builds(settings, checkpoints_of(settings, progress))[app]()


def _ingress(settings: Settings) -> Any:
    """The HTTP processes, each of which listens by itself. First the ledger is brought up to date, as by a start."""
    from serve.catalog.offered import catalog_of
    from serve.cluster.deployments.ingress import build_ingress
    from serve.cluster.nodes import spread_over_nodes
    from serve.money.ledger_setup import prepare_ledger

    asyncio.run(prepare_ledger(settings, catalog_of(settings), now=now()))
    per_node = spread_over_nodes(settings).get(INGRESS_APP)
    return build_ingress(settings, first_lineup(settings).places, None, per_node=per_node)


def settings_of(arguments: Arguments) -> Settings:
    """Settings of the file that `config` names. Raises `ConfigError`, also where it names no cluster."""
    if "config" not in arguments:
        raise ConfigError("args.config is missing: the path of the configuration file")
    settings = load_anchored(Path(arguments["config"]))
    if settings.ray.address is None:
        raise ConfigError(
            f"{arguments['config']}: ray.address: is missing; what Ray Serve deploys from a file runs on a "
            "cluster that is there: set it to auto"
        )
    return settings
