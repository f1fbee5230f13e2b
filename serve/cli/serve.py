"""`pith serve`: starts the server, with the command line's addresses, and says when it is ready."""

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from billing.clock import now
from serve.cluster.progress import Progress
from serve.config.settings import DEFAULT_CONFIG, ConfigError, Settings, load_anchored
from serve.config.unpinned_revisions import unpinned_revisions


def serve(
    config: Annotated[Path, typer.Option(help="Configuration file.")] = DEFAULT_CONFIG,
    host: Annotated[str | None, typer.Option(help="Listen on this address instead of the file's.")] = None,
    port: Annotated[int | None, typer.Option(help="Listen on this port instead of the file's.")] = None,
    ops_port: Annotated[
        int | None, typer.Option(help="Serve /metrics on this port instead of the file's; 0: no metrics.")
    ] = None,
) -> None:
    """Start the server and serve until Ctrl-C."""
    from serve.app import catalog_of
    from serve.cluster.launch import StartError, run_server
    from serve.money.ledger_setup import prepare_ledger

    progress = Progress()
    settings = with_address(load_anchored(config), host, port)
    settings = with_ops_port(settings, ops_port)
    require_free_ports(settings)
    progress.say(f"pith starts from {config}; what it keeps is in {settings.state_dir}")
    for line in unpinned_revisions(settings):
        progress.say(f"warning: {line}")
    progress.begin("opening the ledger")
    key = asyncio.run(prepare_ledger(settings, catalog_of(settings), now=now()))
    try:
        run_server(settings, announce=lambda: announce(settings, key, progress), progress=progress)
    except StartError as error:
        typer.echo(f"pith: {error}", err=True)
        leave_at_once(1)
    leave_at_once(0)


def with_address(settings: Settings, host: str | None, port: int | None) -> Settings:
    """The settings with the command line's address. Raises `ConfigError` for an invalid port."""
    if port is not None and not 1 <= port <= 65535:
        raise ConfigError(f"--port: {port} is not a TCP port (1 to 65535)")
    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    return settings.model_copy(update={"server": settings.server.model_copy(update=given)})


def with_ops_port(settings: Settings, port: int | None) -> Settings:
    """The settings with the command line's port of `/metrics`. Raises `ConfigError` for an invalid port."""
    if port is None:
        return settings
    if not 0 <= port <= 65535:
        raise ConfigError(f"--ops-port: {port} is not a TCP port (1 to 65535, or 0 for none)")
    return settings.model_copy(update={"ops": settings.ops.model_copy(update={"port": port})})


def require_free_ports(settings: Settings) -> None:
    """Raises `ConfigError` when something listens there already, or the address is not this machine's."""
    server, ops = settings.server, settings.ops
    with free_port(server.host, server.port, "PORT= or --port"):
        if ops.port:
            # While the first is held, so that one port for both is refused too.
            with free_port(ops.host, ops.port, "OPS_PORT= or --ops-port"):
                pass


def free_port(host: str, port: int, options: str) -> socket.socket:
    """A socket that holds the port until it is closed. Raises `ConfigError`, which names the options."""
    try:
        # First, since a name that cannot be a host's would leave the socket open.
        host.encode("idna")
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, UnicodeError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise ConfigError(
            f"cannot listen on {host}:{port}: {reason}; choose another with {options}"
        ) from error


def announce(settings: Settings, key: str | None, progress: Progress) -> None:
    """Say that the server is ready, and how to talk to it."""
    base = f"http://{settings.server.host}:{settings.server.port}"
    progress.say(f"ready: {base} (docs: {base}/docs)")
    if settings.ops.port:
        progress.say(f"metrics: http://{settings.ops.host}:{settings.ops.port}/metrics")
    if key is None:
        print("Make a key with: pith workspace create NAME, pith project create, pith key create", flush=True)
        return
    print(
        f"""
  address   {base}/v1
  demo key  {key}
  key file  {settings.demo.key_path} (mode 0600)

Try it:

  curl {base}/v1/chat/completions \\
    -H "Authorization: Bearer {key}" -H "Content-Type: application/json" \\
    -d '{{"messages": [{{"role": "user", "content": "Tell me about the river."}}], "max_tokens": 60}}'

Ctrl-C stops everything.
""",
        flush=True,
    )


def leave_at_once(code: int) -> NoReturn:
    """Exit without Ray's exit hooks: they wait seconds for processes that are stopped already."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
