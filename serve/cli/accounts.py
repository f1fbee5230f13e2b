"""`pith workspace|project|key`: who may call, what they may spend, and how fast."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from billing.accounts.account_sql import Project, Workspace
from billing.accounts.accounts import MAX_LIMIT_NANO_USD, Accounts
from billing.caller import MAX_WEIGHT, ProjectLimits
from billing.clock import now
from serve.cli.accounts_text import fields_of, show, show_lines, state_of
from serve.config.settings import DEFAULT_CONFIG, ConfigError, load_anchored

T = TypeVar("T")
NANO = 10**9

workspace_commands = typer.Typer(help="Accounts that pay.", no_args_is_help=True)
project_commands = typer.Typer(help="Sets of keys with their own rate limits.", no_args_is_help=True)
key_commands = typer.Typer(help="API keys.", no_args_is_help=True)

Config = Annotated[Path, typer.Option("--config", help="Configuration file that names the ledger.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Usd = Annotated[str | None, typer.Option(help="US dollars, or `none` for no limit.")]
PerMinute = Annotated[int | None, typer.Option(min=0, help="0 for no limit.")]
WEIGHT_HELP = "Its share of places and turns where projects wait for the same engine, beside theirs."
Weight = Annotated[int, typer.Option(min=1, max=MAX_WEIGHT, help=WEIGHT_HELP)]
NewWeight = Annotated[int | None, typer.Option(min=1, max=MAX_WEIGHT, help=WEIGHT_HELP)]
OfWorkspace = Annotated[str | None, typer.Option("--workspace", help="Only of this workspace (id or name).")]
All = Annotated[bool, typer.Option("--all", help="Show what was revoked too.")]


def on_accounts(
    config: Path,
    work: Callable[[Accounts], Awaitable[T]],
    *,
    makes_ledger: bool = False,
    makes_pepper: bool = False,
) -> T:
    """Run `work` on the ledger that `config` names. Raises `ConfigError` where there is none, unless it may be made."""
    from serve.money.ledger_setup import open_accounts

    async def run() -> T:
        database, accounts = await open_accounts(
            load_anchored(config), makes_ledger=makes_ledger, makes_pepper=makes_pepper
        )
        try:
            return await work(accounts)
        finally:
            await database.close()

    return asyncio.run(run())


@workspace_commands.command("create")
def create_workspace(
    name: str,
    limit_usd: Usd = None,
    monthly_limit_usd: Usd = None,
    billing: Annotated[bool, typer.Option(help="Whether requests may be charged.")] = True,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """Make a workspace."""
    show(
        on_accounts(
            config,
            lambda accounts: accounts.create_workspace(
                name,
                spend_limit_nano_usd=nano_usd(limit_usd, "--limit-usd"),
                monthly_limit_nano_usd=nano_usd(monthly_limit_usd, "--monthly-limit-usd"),
                billing_enabled=billing,
                now=now(),
            ),
            makes_ledger=True,
            makes_pepper=True,
        ),
        as_json,
    )


@workspace_commands.command("set")
def set_workspace(
    workspace: str,
    limit_usd: Usd = None,
    monthly_limit_usd: Usd = None,
    billing: Annotated[bool | None, typer.Option("--billing/--no-billing")] = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """Change a workspace's limits, or switch its billing on or off; what is not named stays."""
    require_one(
        {
            "--limit-usd": limit_usd,
            "--monthly-limit-usd": monthly_limit_usd,
            "--billing/--no-billing": billing,
        }
    )

    async def change(accounts: Accounts) -> Workspace:
        found = await accounts.find_workspace(workspace)
        if limit_usd is not None or monthly_limit_usd is not None:
            total = (
                nano_usd(limit_usd, "--limit-usd") if limit_usd is not None else found.spend_limit_nano_usd
            )
            month = (
                nano_usd(monthly_limit_usd, "--monthly-limit-usd")
                if monthly_limit_usd is not None
                else found.monthly_limit_nano_usd
            )
            found = await accounts.set_spend_limits(
                workspace, spend_limit_nano_usd=total, monthly_limit_nano_usd=month
            )
        return await accounts.set_billing(workspace, enabled=billing) if billing is not None else found

    show(on_accounts(config, change), as_json)


@workspace_commands.command("list")
def list_workspaces(all_: All = False, config: Config = DEFAULT_CONFIG, as_json: Json = False) -> None:
    """List workspaces with what they have spent."""
    found = on_accounts(config, lambda accounts: accounts.list_workspaces())
    show_lines(
        [{**fields_of(one), **state_of("workspace" if one.revoked_at else None)} for one in found],
        all_,
        as_json,
    )


@workspace_commands.command("revoke")
def revoke_workspace(workspace: str, config: Config = DEFAULT_CONFIG, as_json: Json = False) -> None:
    """Revoke a workspace with all its keys."""
    show(on_accounts(config, lambda accounts: accounts.revoke_workspace(workspace, now=now())), as_json)


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


@key_commands.command("create")
def create_key(
    project: str, name: str = "key", config: Config = DEFAULT_CONFIG, as_json: Json = False
) -> None:
    """Make a key for a project (WORKSPACE/PROJECT or its id). The secret is shown this once."""
    record, secret = on_accounts(
        config, lambda accounts: accounts.create_key(project, name, now=now()), makes_pepper=True
    )
    if as_json:
        typer.echo(json.dumps({**fields_of(record), "key": secret}))
    else:
        typer.echo(f"{secret}\nThis key is shown once. Id: {record.id}")


@key_commands.command("list")
def list_keys(
    workspace: OfWorkspace = None,
    project: Annotated[
        str | None, typer.Option(help="Only of this project (WORKSPACE/PROJECT or id).")
    ] = None,
    all_: All = False,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """List keys with what they belong to, without their secrets."""
    found = on_accounts(config, lambda accounts: accounts.list_keys(workspace, project))
    lines = [
        {
            "workspace": one.workspace.name,
            "project": one.project.name,
            "workspace_id": one.workspace.id,
            **fields_of(one.key),
            **state_of(one.revoked),
        }
        for one in found
    ]
    show_lines(lines, all_, as_json, first=("id", "workspace", "project", "name"))


@key_commands.command("revoke")
def revoke_key(key: str, config: Config = DEFAULT_CONFIG, as_json: Json = False) -> None:
    """Revoke a key, by its id or as a whole. It stops working within 5 seconds everywhere."""
    show(on_accounts(config, lambda accounts: accounts.revoke_key(key, now=now())), as_json)


def nano_usd(text: str | None, option: str) -> int | None:
    """An amount from the command line. Raises `ConfigError` for one that is no amount."""
    if text is None or text.lower() == "none":
        return None
    most = Decimal(MAX_LIMIT_NANO_USD) / NANO
    try:
        usd = Decimal(text)
    except InvalidOperation:
        usd = Decimal(-1)
    # Bounded before anything is computed: a million digits take minutes.
    if not (usd.is_finite() and 0 <= usd <= most and usd * NANO == int(usd * NANO)):
        raise ConfigError(
            f"{option}: {text!r} is no amount of US dollars from 0 to {most} with at most 9 decimals"
        )
    return int(usd * NANO)


def require_one(options: Mapping[str, object]) -> None:
    """Raises `ConfigError` where none of these was given: a command that changes nothing was meant otherwise."""
    if all(value is None for value in options.values()):
        raise ConfigError(f"nothing to change: give one or more of {', '.join(options)}")


def _changed(given: int | None, old: int | None) -> int | None:
    return old if given is None else given or None
