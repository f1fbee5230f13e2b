"""`pith project`: sets of keys with their own rate limits."""

from typing import Annotated

import typer

from billing.accounts.account_sql import Project
from billing.accounts.accounts import Accounts
from billing.caller import MAX_WEIGHT, ProjectLimits
from billing.clock import now
from serve.cli.account_output import fields_of, show, show_lines, state_of
from serve.cli.ledger_access import on_accounts
from serve.cli.options import All, Config, Json, OfWorkspace, require_one
from serve.config.settings import DEFAULT_CONFIG

project_commands = typer.Typer(help="Sets of keys with their own rate limits.", no_args_is_help=True)

PerMinute = Annotated[int | None, typer.Option(min=0, help="0 for no limit.")]
WEIGHT_HELP = "Its share of places and turns relative to other projects that wait for the same engine."
Weight = Annotated[int, typer.Option(min=1, max=MAX_WEIGHT, help=WEIGHT_HELP)]
NewWeight = Annotated[int | None, typer.Option(min=1, max=MAX_WEIGHT, help=WEIGHT_HELP)]


@project_commands.command("create")
def create_project(
    workspace: str,
    name: str,
    metered: Annotated[bool, typer.Option(help="Whether usage is recorded and charged.")] = True,
    requests_per_minute: PerMinute = None,
    tokens_per_minute: PerMinute = None,
    max_in_flight: PerMinute = None,
    weight: Weight = 1,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """Make a project in a workspace."""
    limits = ProjectLimits(
        requests_per_minute or None, tokens_per_minute or None, max_in_flight or None, weight
    )
    show(
        on_accounts(
            config,
            lambda accounts: accounts.create_project(
                workspace, name, metered=metered, limits=limits, now=now()
            ),
        ),
        as_json,
    )


@project_commands.command("set")
def set_project(
    project: str,
    metered: Annotated[
        bool | None, typer.Option("--metered/--no-metered", help="Whether usage is recorded and charged.")
    ] = None,
    requests_per_minute: PerMinute = None,
    tokens_per_minute: PerMinute = None,
    max_in_flight: PerMinute = None,
    weight: NewWeight = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """Change a project's rate limits, its weight, or whether it is metered; what is not named stays."""
    rates = {
        "--requests-per-minute": requests_per_minute,
        "--tokens-per-minute": tokens_per_minute,
        "--max-in-flight": max_in_flight,
        "--weight": weight,
    }
    require_one({"--metered/--no-metered": metered, **rates})

    async def change(accounts: Accounts) -> Project:
        found = await accounts.find_project(project)
        if metered is not None:
            found = await accounts.set_metered(project, metered=metered)
        if all(rate is None for rate in rates.values()):
            return found
        old = found.limits
        limits = ProjectLimits(
            _changed(requests_per_minute, old.requests_per_minute),
            _changed(tokens_per_minute, old.tokens_per_minute),
            _changed(max_in_flight, old.max_in_flight),
            weight or old.weight,
        )
        return await accounts.set_project_limits(project, limits)

    show(on_accounts(config, change), as_json)


@project_commands.command("list")
def list_projects(
    workspace: OfWorkspace = None, all_: All = False, config: Config = DEFAULT_CONFIG, as_json: Json = False
) -> None:
    """List projects with the names of their workspaces."""
    found = on_accounts(config, lambda accounts: accounts.list_projects(workspace))
    lines = [
        {"workspace": one.workspace.name, **fields_of(one.project), **state_of(one.revoked)} for one in found
    ]
    show_lines(lines, all_, as_json, first=("id", "workspace", "name"))


@project_commands.command("revoke")
def revoke_project(project: str, config: Config = DEFAULT_CONFIG, as_json: Json = False) -> None:
    """Revoke a project with all its keys."""
    show(on_accounts(config, lambda accounts: accounts.revoke_project(project, now=now())), as_json)


def _changed(given: int | None, old: int | None) -> int | None:
    return old if given is None else given or None
