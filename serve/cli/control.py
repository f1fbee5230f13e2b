"""`pith reload`, `pith drain` and `pith stop`: a server that runs is changed, or leaves a node or its cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from serve.cli.options import Json
from serve.cli.output import printable
from serve.config.paths import DEFAULT_CONFIG, ConfigError

if TYPE_CHECKING:
    from serve.cluster.reload_plan import Asked


class CodeOf(StrEnum):
    http = "http"
    all = "all"


def reload(
    config: Annotated[
        Path | None,
        typer.Option(help="Configuration file; default: the one that the server was started from."),
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="The server's port, where several run with one state_dir.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would change and what cannot; change nothing.")
    ] = False,
    code: Annotated[
        CodeOf | None,
        typer.Option(help="Take the code anew: of the HTTP processes, or of all that answers requests."),
    ] = None,
    within: Annotated[
        float | None,
        typer.Option(
            min=1,
            max=86_400,
            help="Seconds that new processes get to run; then the reload is given up. Default: 1800.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Put a changed configuration, or new code, in force while the server runs. Exit code 1: it did not start, and
    what was in force is; 2: it cannot be changed while the server runs, or is wrong."""
    from serve.cluster.reload_plan import WITHIN_S, Asked
    from serve.config.settings import load_anchored

    settings = load_anchored(config or DEFAULT_CONFIG)
    folder = folder_of(settings.state_dir, port)
    path = None if config is None else config.absolute()
    asked = Asked("", path, dry_run, "none" if code is None else code.value, within or WITHIN_S)
    outcome = ask_for(folder, asked, quiet=as_json)
    if as_json:
        typer.echo(json.dumps(outcome, indent=2))
    elif "error" in outcome:
        typer.echo(f"pith: {printable(str(outcome['error']))}", err=True)
    elif dry_run:
        typer.echo("nothing was changed (--dry-run)")
    raise SystemExit(outcome["exit"])


def folder_of(state_dir: Path, port: int | None) -> Path:
    """The run folder of the server. Raises `ConfigError` where none runs, or it is not clear which."""
    from serve.processes.control import folders_of_servers

    found = folders_of_servers(state_dir)
    if port is not None and port in found:
        return found[port]
    if port is not None or not found:
        on = "" if port is None else f" on port {port}"
        raise ConfigError(f"no server runs with {state_dir}{on}; one that is starting cannot be reloaded yet")
    if len(found) > 1:
        raise ConfigError(
            f"several servers run with {state_dir}: name one with --port ({', '.join(map(str, found))})"
        )
    return next(iter(found.values()))


def ask_for(folder: Path, asked: Asked, *, quiet: bool) -> Mapping[str, Any]:
    """The last line of the server's answer; the others are printed as they come."""
    from serve.processes.control import NoServer, ask

    try:
        for message in ask(folder, asked.request()):
            if "exit" in message:
                return message
            if not quiet:
                typer.echo(printable(str(message.get("say", ""))))
    except NoServer as error:
        return {"exit": 1, "error": str(error)}
    return {"exit": 1, "error": "the server ended before it had answered"}


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
    from serve.cluster.drain import drain_at
    from serve.cluster.progress import StartError
    from serve.config.settings import load_anchored

    settings = load_anchored(config)
    if settings.ray.address is None:
        raise ConfigError(f"{config} has no ray.address: such a server is one machine, and Ctrl-C stops it")
    try:
        drain_at(settings, node, within_s=within, say=typer.echo)
    except StartError as error:
        raise ConfigError(str(error)) from error
    typer.echo(f"{node}: drained; nothing of pith is there, and Ray's processes end by themselves")


def stop(config: Annotated[Path, typer.Option(help="Configuration file.")] = DEFAULT_CONFIG) -> None:
    """Stop pith on a Ray cluster; Ray runs on."""
    from serve.cluster.joined import stop_at
    from serve.cluster.progress import StartError
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
