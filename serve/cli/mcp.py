"""`pith mcp`: compression as tools for an agent, over the Model Context Protocol on standard input and output."""

from pathlib import Path
from typing import Annotated

import typer

from serve.cli.access import KEY_VARIABLE, key_of
from serve.config.paths import ConfigError


def mcp(
    url: Annotated[str, typer.Option(help="Where pith runs.")] = "http://127.0.0.1:8000",
    key_file: Annotated[
        Path | None, typer.Option(help=f"File with the API key; without it, {KEY_VARIABLE} holds the key.")
    ] = None,
) -> None:
    """Serve the tools `compress` and `retrieve` to an MCP client, which starts this command itself."""
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"--url: must begin with http:// or https://, not {url!r}")
    key = key_of(key_file)
    # Here, because the protocol's packages take half a second to import.
    from serve.cli.main import installed_version
    from serve.client.pith_client import PithClient
    from serve.mcp_server import mcp_server

    mcp_server(PithClient(url, key), installed_version()).run("stdio")
