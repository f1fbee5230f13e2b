"""The `pith` command: start the server, check a configuration, keep accounts, read the books."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from billing.errors import BillingError
from serve.cli.accounts import key_commands, project_commands, workspace_commands
from serve.cli.books import audit, reconcile, statement, usage
from serve.cli.capacity_text import fit_of
from serve.cli.collections import collection_commands
from serve.cli.compress import compress_file
from serve.cli.receipts import receipts
from serve.cli.spool import spool_commands
from serve.cli.tune import tune
from serve.cluster.progress import Progress
from serve.config.settings import DEFAULT_CONFIG, ConfigError, Settings, load_anchored, load_settings
from serve.config.unpinned_revisions import unpinned_revisions

USAGE_ERROR = 2

app = typer.Typer(
    help="Inference, compression and billing on your own machines.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
config = typer.Typer(help="Work with configuration files.", no_args_is_help=True)
app.add_typer(config, name="config")
app.add_typer(workspace_commands, name="workspace")
app.add_typer(project_commands, name="project")
app.add_typer(key_commands, name="key")
app.add_typer(collection_commands, name="collections")
for command in (usage, receipts, statement, reconcile, audit):
    app.command(command.__name__)(command)
app.add_typer(spool_commands, name="spool")
app.command("compress")(compress_file)
app.command("tune")(tune)


@app.command()
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
    key = asyncio.run(prepare_ledger(settings, catalog_of(settings), now=datetime.now(UTC)))
    try:
        run_server(settings, announce=lambda: announce(settings, key, progress), progress=progress)
    except StartError as error:
        leave_at_once(_complain(str(error), 1))
    leave_at_once(0)


@config.command("check")
def check(
    file: Annotated[Path, typer.Argument(help="Configuration file.")],
    node: Annotated[
        list[str] | None,
        typer.Option(
            help="A machine, as 8xH100-80GB or cpu:16-64GB (several: of a cluster): does everything fit? "
            "Absent: the file's `nodes`."
        ),
    ] = None,
) -> None:
    """Validate a configuration without starting anything. Exit code 1 where it does not fit its machines."""
    settings = load_settings(file)
    nodes = node or settings.nodes
    fits, said = fit_of(settings, nodes) if nodes else (True, "")
    models = ", ".join(model.id for model in settings.models)
    typer.echo(f"{file}: valid; serves {models}")
    for line in unpinned_revisions(settings):
        typer.echo(f"warning: {line}", err=True)
    if said:
        typer.echo(said)
    if not fits:
        raise SystemExit(1)


def with_address(settings: Settings, host: str | None, port: int | None) -> Settings:
    """The settings with the command line's address. Raises `ConfigError` for a port that is none."""
    if port is not None and not 1 <= port <= 65535:
        raise ConfigError(f"--port: {port} is no TCP port (1 to 65535)")
    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    return settings.model_copy(update={"server": settings.server.model_copy(update=given)})


def with_ops_port(settings: Settings, port: int | None) -> Settings:
    """The settings with the command line's port of `/metrics`. Raises `ConfigError` for a port that is none."""
    if port is None:
        return settings
    if not 0 <= port <= 65535:
        raise ConfigError(f"--ops-port: {port} is no TCP port (1 to 65535, or 0 for none)")
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


def leave_at_once(code: int) -> NoReturn:
    """Exit without Ray's exit hooks: they wait seconds for processes that are stopped already."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


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


def main() -> None:
    """Run a command. A failure ends with one line and no trace.

    The exit code is 2 where the arguments or the configuration are wrong, and 1 where the ledger refuses.
    """
    try:
        app()
    except ConfigError as error:
        raise SystemExit(_complain(str(error), USAGE_ERROR)) from error
    except BillingError as error:
        raise SystemExit(_complain(str(error), 1)) from error


def _complain(message: str, code: int) -> int:
    print(f"pith: {message}", file=sys.stderr, flush=True)
    return code
