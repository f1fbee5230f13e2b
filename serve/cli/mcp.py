"""`pith mcp`: compression as tools for an agent, over the Model Context Protocol on standard input and output."""

import os
from pathlib import Path
from typing import Annotated

import typer

from serve.config.errors import ConfigError

KEY_VARIABLE = "PITH_API_KEY"


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
    from serve.cli.verbs.version import installed_version
    from serve.client.pith_client import PithClient
    from serve.mcp_server.server import mcp_server

    mcp_server(PithClient(url, key), installed_version()).run("stdio")


def key_of(file: Path | None) -> str:
    """The key in `file`, else in the environment. Raises `ConfigError`."""
    try:
        key = (os.environ.get(KEY_VARIABLE, "") if file is None else file.read_text("utf-8")).strip()
    except OSError as error:
        raise ConfigError(f"--key-file: {file}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"--key-file: {file}: is not UTF-8") from error
    if not key or not key.isascii() or not key.isprintable():
        source = KEY_VARIABLE if file is None else f"--key-file: {file}"
        raise ConfigError(f"{source}: holds no API key; pith key create WORKSPACE/PROJECT makes one")
    return key
