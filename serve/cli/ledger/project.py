"""`pith project`: sets of keys with their own rate limits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from billing.caller import MAX_WEIGHT, ProjectLimits
from serve.cli import output
from serve.cli.ledger_access import on_accounts, on_books
from serve.cli.options import All, AProject, AWorkspace, Config, Json, OfWorkspace, require_one
from serve.config.paths import DEFAULT_CONFIG, ConfigError

project_commands = typer.Typer(help="Sets of keys with their own rate limits.", no_args_is_help=True)

PerMinute = Annotated[int | None, typer.Option(min=0, help="0 for no limit.")]
WEIGHT_HELP = "Its share of places and turns relative to other projects that wait for the same engine."
Weight = Annotated[int, typer.Option(min=1, max=MAX_WEIGHT, help=WEIGHT_HELP)]
NewWeight = Annotated[int | None, typer.Option(min=1, max=MAX_WEIGHT, help=WEIGHT_HELP)]
COMPRESSION_HELP = (
    "How its chats are compressed unless a request says so itself, as JSON with the fields of a request's "
    """`compression`, such as '{"target_ratio": 0.3}'; `off`: not at all."""
)
Compression = Annotated[str | None, typer.Option(metavar="JSON|off", help=COMPRESSION_HELP)]
OFF = "off"


@project_commands.command("create")
def create_project(
    workspace: AWorkspace,
    name: str,
    metered: Annotated[bool, typer.Option(help="Whether usage is recorded and charged.")] = True,
    requests_per_minute: PerMinute = None,
    tokens_per_minute: PerMinute = None,
    max_in_flight: PerMinute = None,
    weight: Weight = 1,
    compression: Compression = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """Make a project in a workspace."""
    default = _default(compression, config)
    limits = ProjectLimits(
        requests_per_minute or None, tokens_per_minute or None, max_in_flight or None, weight
    )
    made = on_accounts(
        config,
        lambda operator: operator.create_project(
            workspace, name, metered=metered, limits=limits, compression=default
        ),
    )
    output.show(made, as_json)


@project_commands.command("set")
def set_project(
    project: AProject,
    metered: Annotated[
        bool | None, typer.Option("--metered/--no-metered", help="Whether usage is recorded and charged.")
    ] = None,
    requests_per_minute: PerMinute = None,
    tokens_per_minute: PerMinute = None,
    max_in_flight: PerMinute = None,
    weight: NewWeight = None,
    compression: Compression = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """Change a project's rate limits, its weight, how its chats are compressed, or whether it is metered; what is not
    named stays."""
    rates = {
        "requests_per_minute": requests_per_minute,
        "tokens_per_minute": tokens_per_minute,
        "max_in_flight": max_in_flight,
        "weight": weight,
    }
    options = {f"--{name.replace('_', '-')}": rate for name, rate in rates.items()}
    require_one({"--metered/--no-metered": metered, **options, "--compression": compression})
    values: dict[str, Any] = {name: rate or None for name, rate in rates.items() if rate is not None}
    if metered is not None:
        values["metered"] = metered
    if compression is not None:
        values["compression"] = _default(compression, config)
    output.show(on_accounts(config, lambda operator: operator.change_project(project, values)), as_json)


@project_commands.command("list")
def list_projects(
    workspace: OfWorkspace = None, all_: All = False, config: Config = DEFAULT_CONFIG, as_json: Json = False
) -> None:
    """List projects with the names of their workspaces; whose compression cannot be used is said after the list."""
    from serve.config.settings import load_anchored
    from serve.prompt_compression.options import problem_of

    found = on_accounts(config, lambda operator: operator.projects(workspace))
    output.show_unrevoked(found, all_, as_json, first=("id", "workspace", "name"))
    models = load_anchored(config).compression
    for one in found:
        default = one["compression"]
        stored = default if default is None or isinstance(default, str) else json.dumps(default)
        problem = problem_of(stored, models)
        if one["state"] == output.ACTIVE and problem is not None:
            name = f"{one['workspace']}/{one['name']}"
            typer.echo(f"{name}: its chats are not compressed as it says: {problem}", err=True)


@project_commands.command("revoke")
def revoke_project(project: AProject, config: Config = DEFAULT_CONFIG, as_json: Json = False) -> None:
    """Revoke a project with all its keys."""
    output.show(on_accounts(config, lambda operator: operator.revoke_project(project)), as_json)


def _default(compression: str | None, config: Path) -> str | None:
    """What is kept of the option. Raises `ConfigError`."""
    if compression is None or compression == OFF:
        return None
    from serve.config.settings import load_anchored
    from serve.prompt_compression.options import BadDefault, checked_default, stored_default

    try:
        return stored_default(checked_default(compression, load_anchored(config).compression))
    except BadDefault as error:
        raise ConfigError(f"--compression: {error}") from error


@project_commands.command("forget-originals")
def forget_originals(project: AProject, config: Config = DEFAULT_CONFIG, as_json: Json = False) -> None:
    """Delete every original that a project has had kept (`compression.retain_s`)."""
    output.show(on_books(config, lambda operator: operator.forget_originals(project)), as_json)
