"""`pith workspace`: accounts that pay, with what they may spend."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Annotated, Any

import typer

from billing.price import NANO_PER_USD
from serve.cli import output
from serve.cli.ledger_access import on_accounts
from serve.cli.options import All, AWorkspace, Config, Json, require_one
from serve.config.paths import DEFAULT_CONFIG, ConfigError

workspace_commands = typer.Typer(help="Accounts that pay.", no_args_is_help=True)

Usd = Annotated[str | None, typer.Option(help="US dollars, or `none` for no limit.")]


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
    made = on_accounts(
        config,
        lambda operator: operator.create_workspace(
            name,
            spend_limit_nano_usd=nano_usd(limit_usd, "--limit-usd"),
            monthly_limit_nano_usd=nano_usd(monthly_limit_usd, "--monthly-limit-usd"),
            billing_enabled=billing,
        ),
        makes_ledger=True,
        makes_pepper=True,
    )
    _show(made, as_json)


@workspace_commands.command("set")
def set_workspace(
    workspace: AWorkspace,
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

    values: dict[str, Any] = {}
    if limit_usd is not None:
        values["spend_limit_nano_usd"] = nano_usd(limit_usd, "--limit-usd")
    if monthly_limit_usd is not None:
        values["monthly_limit_nano_usd"] = nano_usd(monthly_limit_usd, "--monthly-limit-usd")
    if billing is not None:
        values["billing_enabled"] = billing
    _show(on_accounts(config, lambda operator: operator.change_workspace(workspace, values)), as_json)


@workspace_commands.command("list")
def list_workspaces(all_: All = False, config: Config = DEFAULT_CONFIG, as_json: Json = False) -> None:
    """List workspaces with what they have spent."""
    output.show_unrevoked(on_accounts(config, lambda operator: operator.workspaces()), all_, as_json)


@workspace_commands.command("revoke")
def revoke_workspace(workspace: AWorkspace, config: Config = DEFAULT_CONFIG, as_json: Json = False) -> None:
    """Revoke a workspace with all its keys."""
    _show(on_accounts(config, lambda operator: operator.revoke_workspace(workspace)), as_json)


def _show(row: dict[str, Any], as_json: bool) -> None:
    """Its state is in the lists alone."""
    output.show({name: value for name, value in row.items() if name != "state"}, as_json)


def nano_usd(text: str | None, option: str) -> int | None:
    """An amount from the command line. Raises `ConfigError` if it is not one."""
    if text is None or text.lower() == "none":
        return None
    from billing.accounts.keys import MAX_LIMIT_NANO_USD

    most = Decimal(MAX_LIMIT_NANO_USD) / NANO_PER_USD
    try:
        usd = Decimal(text)
    except InvalidOperation:
        usd = Decimal(-1)
    # The bound is checked before anything is computed: a million digits would take minutes.
    if not (usd.is_finite() and 0 <= usd <= most and usd * NANO_PER_USD == int(usd * NANO_PER_USD)):
        raise ConfigError(
            f"{option}: {text!r} is not an amount of US dollars from 0 to {most} with at most 9 decimals"
        )
    return int(usd * NANO_PER_USD)
