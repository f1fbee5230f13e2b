"""`pith drain`: empties a node of the Ray cluster of a configuration without a failed request."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from serve.config.errors import ConfigError
from serve.config.paths import DEFAULT_CONFIG


def drain(
    node: Annotated[str, typer.Argument(help="Its address, host name or id, as Ray has it.")],
    config: Annotated[Path, typer.Option(help="Configuration file.")] = DEFAULT_CONFIG,
    within: Annotated[
        float,
        typer.Option(
            min=0, help="Seconds for its clients to leave, and again for replicas to start elsewhere."
        ),
    ] = 600,
) -> None:
    """Empty a node of the Ray cluster, so that it may be stopped."""
    from serve.cluster.checkpoints import StartError
    from serve.cluster.drain import drain_at
    from serve.config.settings import load_anchored

    settings = load_anchored(config)
    if settings.ray.address is None:
        raise ConfigError(f"{config} has no ray.address: such a server is one machine, and Ctrl-C stops it")
    try:
        drain_at(settings, node, within_s=within, say=typer.echo)
    except StartError as error:
        raise ConfigError(str(error)) from error
    typer.echo(f"{node}: drained; nothing of pith is there, and Ray's processes end by themselves")
