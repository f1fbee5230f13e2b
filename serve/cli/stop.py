"""`pith stop`: stops pith on the Ray cluster of a configuration, whoever started it there, and leaves Ray running."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from serve.config.errors import ConfigError
from serve.config.paths import DEFAULT_CONFIG


def stop(config: Annotated[Path, typer.Option(help="Configuration file.")] = DEFAULT_CONFIG) -> None:
    """Stop pith on a Ray cluster; Ray runs on."""
    from serve.cluster.checkpoints import StartError
    from serve.cluster.joined import stop_at
    from serve.config.settings import load_anchored

    address = load_anchored(config).ray.address
    if address is None:
        raise ConfigError(
            f"{config} has no ray.address: such a server stops with Ctrl-C or SIGTERM where it runs"
        )
    try:
        typer.echo(f"{address}: {stop_at(address)}")
    except StartError as error:
        raise ConfigError(str(error)) from error
