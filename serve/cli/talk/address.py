"""Where a server is, and the key that a command sends it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from serve.cli.mcp import KEY_VARIABLE, key_of
from serve.client.base_url import base_url
from serve.config.errors import ConfigError

if TYPE_CHECKING:
    from serve.config.settings import Settings

Url = Annotated[
    str | None,
    typer.Option(help="Where pith runs, such as http://127.0.0.1:8000; default: the file's address."),
]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        help=f"File with the API key; else {KEY_VARIABLE}, else the demo key of the file's own server."
    ),
]


def checked_url(url: str) -> str:
    """Without a slash or a dialect's path at the end. Raises `ConfigError`."""
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"--url: must begin with http:// or https://, not {url!r}")
    return url.rstrip("/").removesuffix("/v1").removesuffix("/openai")


def url_and_key(url: str | None, key_file: Path | None, config: Path) -> tuple[str, str]:
    """Raises `ConfigError`. The demo key goes to the address of its own configuration alone."""
    import os

    if url is not None and (key_file is not None or os.environ.get(KEY_VARIABLE)):
        return checked_url(url), key_of(key_file)
    from serve.config.ray_cluster import NODE
    from serve.config.settings import load_anchored

    settings = load_anchored(config)
    if url is None and settings.server.host == NODE:
        raise ConfigError(
            f"server.host is {NODE}: name one of the cluster's nodes, or its balancer, with --url"
        )
    own = base_url(settings.server.host, settings.server.port)
    chosen = own if url is None else checked_url(url)
    if key_file is not None or os.environ.get(KEY_VARIABLE):
        return chosen, key_of(key_file)
    return chosen, _demo_key(settings, chosen == own)


def _demo_key(settings: Settings, is_own: bool) -> str:
    path = settings.demo.key_path
    if settings.demo.enabled and is_own and path.is_file():
        return key_of(path)
    raise ConfigError(
        f"no API key: set {KEY_VARIABLE} or give --key-file; pith key create WORKSPACE/PROJECT makes one"
    )
