"""`pith serve`: starts the server, with the command line's addresses, and says when it is ready."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import socket
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from billing.usage import now
from serve.cli.access import base_url
from serve.cluster.progress import Progress
from serve.config.paths import DEFAULT_CONFIG, ConfigError

if TYPE_CHECKING:
    from serve.config.settings import Settings


def serve(
    config: Annotated[Path, typer.Option(help="Configuration file.")] = DEFAULT_CONFIG,
    host: Annotated[str | None, typer.Option(help="Listen on this address instead of the file's.")] = None,
    port: Annotated[int | None, typer.Option(help="Listen on this port instead of the file's.")] = None,
    ops_port: Annotated[
        int | None, typer.Option(help="Serve /metrics on this port instead of the file's; 0: no metrics.")
    ] = None,
    attach: Annotated[
        bool,
        typer.Option("--attach", help="On a cluster (ray.address): join what runs, and leave it at exit."),
    ] = False,
) -> None:
    """Start the server and serve until Ctrl-C."""
    from serve.catalog.offered import catalog_of
    from serve.cluster.fetched_models import without_missing
    from serve.cluster.launch import run_server
    from serve.cluster.progress import StartError
    from serve.config.added_adapters import with_added
    from serve.config.settings import load_anchored, unpinned_revisions
    from serve.logs.outlet import DRAIN_S, begin_logs
    from serve.money.ledger_setup import prepare_ledger

    progress, config = Progress(), config.absolute()

    def read(file: Path | None = None) -> Settings:
        return with_added(with_ops_port(with_address(load_anchored(file or config), host, port), ops_port))

    def read_again(file: Path | None) -> Settings:
        return without_missing(read(file), progress, may_fetch=False)

    settings = read()
    require_cluster(settings, attach=attach)
    require_free_ports(settings)
    require_headers(settings)
    outlet = begin_logs(settings.logs.plan(None))
    if settings.logs.format == "json":
        progress.say_in_logs()
    progress.say(f"pith starts from {config}; what it keeps is in {settings.state_dir}")
    for line in unpinned_revisions(settings):
        progress.say(f"warning: {line}")
    # Until the server has its own handlers, what is being fetched ends with this process, as with Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    settings = without_missing(settings, progress)
    progress.begin("opening the ledger")
    key = asyncio.run(prepare_ledger(settings, catalog_of(settings), now=now()))
    ready = partial(announce, settings, key, progress, ending_of(settings, attach=attach))
    try:
        run_server(settings, read=read_again, announce=ready, progress=progress, attach=attach)
    except StartError as error:
        outlet.drain(DRAIN_S)
        typer.echo(f"pith: {error}", err=True)
        leave_at_once(1)
    outlet.drain(DRAIN_S)
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
    from serve.processes.listener import is_given_socket

    server, ops = settings.server, settings.ops
    with ExitStack() as held:
        # A cluster's HTTP processes are where Ray puts them. A service manager's socket listens already.
        if settings.ray.address is None and not is_given_socket(os.environ):
            held.enter_context(free_port(server.host, server.port, "PORT= or --port"))
        if ops.port:
            # While the first is held, so that one port for both is refused too.
            held.enter_context(free_port(ops.host, ops.port, "OPS_PORT= or --ops-port"))


def require_cluster(settings: Settings, *, attach: bool) -> None:
    """Raises `ConfigError` where there is no cluster to join."""
    if attach and settings.ray.address is None:
        raise ConfigError("--attach joins a Ray cluster, and this configuration has no ray.address")


def ending_of(settings: Settings, *, attach: bool) -> str:
    """The sentence that says what Ctrl-C does."""
    if attach:
        return "Ctrl-C leaves it running on the cluster; `pith stop` stops it."
    if settings.ray.address is not None:
        return "Ctrl-C stops what this server has started on the cluster; Ray runs on."
    return "Ctrl-C stops everything."


def require_headers(settings: Settings) -> None:
    """Raises `ConfigError` where the headers for the collector of traces cannot be read."""
    from serve.config.server_settings import BadHeaders

    try:
        settings.tracing.headers()
    except BadHeaders as error:
        raise ConfigError(f"tracing.headers_file: {error}") from None


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


def announce(settings: Settings, key: str | None, progress: Progress, ending: str) -> None:
    """Say that the server is ready, how to talk to it, and what ends it."""
    from serve.config.server_settings import NODE

    base = base_url(settings.server.host, settings.server.port)
    if settings.server.host == NODE:
        base = base_url("NODE", settings.server.port)
        progress.say("NODE is the address of any node with an HTTP process, or of the balancer before them")
    progress.say(f"ready: {base} (docs: {base}/docs)")
    if settings.server.playground:
        progress.say(f"playground: {base}/")
    if settings.ops.port:
        progress.say(f"metrics: http://{settings.ops.host}:{settings.ops.port}/metrics")
    if settings.logs.format == "json":
        # What follows is for a person.
        return
    if key is None:
        print("Make a key with: pith workspace create NAME, pith project create, pith key create", flush=True)
        print(ending, flush=True)
        return
    # A file or a container's log keeps what is printed, and has other readers.
    is_seen = sys.stdout.isatty()
    bearer = key if is_seen else f"$(cat {shlex.quote(str(settings.demo.key_path))})"
    said = f"  demo key  {key}\n" if is_seen else ""
    if is_seen and settings.server.playground:
        # A browser sends no fragment to a server, and the page takes it out of the address.
        said = f"  try it    {base}/#key={key}\n{said}"
    print(
        f"""
  address   {base}/v1
{said}  key file  {settings.demo.key_path} (mode 0600)

Try it:

  curl {base}/v1/chat/completions \\
    -H "Authorization: Bearer {bearer}" -H "Content-Type: application/json" \\
    -d '{{"messages": [{{"role": "user", "content": "What is the capital of France?"}}], "max_tokens": 60}}'

{ending}
""",
        flush=True,
    )


def leave_at_once(code: int) -> NoReturn:
    """Exit without Ray's exit hooks: they wait seconds for processes that are stopped already."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
