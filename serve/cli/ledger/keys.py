"""`pith key`: what keys may do and spend, until when, and what they have spent."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

import typer

from billing.usage import now
from serve.cli import output
from serve.cli.access import on_accounts
from serve.cli.completion import keys
from serve.cli.ledger.accounts import RATE_OPTIONS, Rates, Usd, spend_limits, with_rates
from serve.cli.options import All, AProject, Config, Json, OfProject, OfWorkspace, moment, require_one
from serve.config.paths import DEFAULT_CONFIG, ConfigError

key_commands = typer.Typer(help="API keys.", no_args_is_help=True)

AKey = Annotated[str, typer.Argument(help="Key (its id, or as a whole).", autocompletion=keys)]
Expires = Annotated[
    str | None,
    typer.Option(help="When it ends: a moment (UTC), or from now on, such as 90d or 12h; `none`: never."),
]
Names = Annotated[str | None, typer.Option(metavar="NAME,…|all", help="The only ones that it may use.")]
NONE, ALL_NAMES = "none", "all"
UNITS = {"m": 60, "h": 3600, "d": 86_400}


@key_commands.command("create")
@with_rates
def create_key(
    project: AProject,
    name: str = "key",
    expires: Expires = None,
    models: Names = None,
    routes: Names = None,
    limit_usd: Usd = None,
    monthly_limit_usd: Usd = None,
    *,
    rates: Rates,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """Make a key for a project (WORKSPACE/PROJECT or its id). The secret is shown this once."""
    from billing.accounts.keys import NO_TERMS, KeyChange

    values = key_terms(expires, models, routes) | spend_limits(limit_usd, monthly_limit_usd) | rates
    terms = KeyChange(values).applied_to(NO_TERMS)
    made = on_accounts(config, lambda operator: operator.create_key(project, name, terms), makes_pepper=True)
    output.show_secret(made["key"], f"This key is shown once. Id: {made['id']}", made, as_json)


@key_commands.command("set")
@with_rates
def set_key(
    key: AKey,
    expires: Expires = None,
    models: Names = None,
    routes: Names = None,
    limit_usd: Usd = None,
    monthly_limit_usd: Usd = None,
    *,
    rates: Rates,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """Change what a key may, how much of it and until when, everywhere within 5 seconds; what is not named stays."""
    from billing.accounts.keys import KeyChange

    values = key_terms(expires, models, routes) | spend_limits(limit_usd, monthly_limit_usd) | rates
    others = ("--expires", "--models", "--routes", "--limit-usd", "--monthly-limit-usd")
    require_one(values, *others, *RATE_OPTIONS)
    change = KeyChange(values)
    output.show(on_accounts(config, lambda operator: operator.change_key(key, change)), as_json)


@key_commands.command("rotate")
def rotate_key(
    key: AKey,
    overlap: Annotated[str, typer.Option(help="How long the old key goes on working: 30m, 24h, 7d.")] = "24h",
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """Make a key with the same powers, limits and spend, and let the old one end after an overlap."""
    kept = span(overlap, "--overlap")
    made = on_accounts(config, lambda operator: operator.rotate_key(key, kept), makes_pepper=True)
    old = made["replaces"]
    about = f"This key is shown once. Id: {made['id']}; {old['id']} works until {old['expires_at']}"
    output.show_secret(made["key"], about, made, as_json)


@key_commands.command("list")
def list_keys(
    workspace: OfWorkspace = None,
    project: OfProject = None,
    all_: All = False,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """List keys with what they belong to, may and have spent, without their secrets."""
    found = on_accounts(config, lambda operator: operator.keys(workspace, project))
    first = ("id", "workspace", "project", "name", "workspace_id")
    output.show_unrevoked(found, all_, as_json, first=first)


@key_commands.command("revoke")
def revoke_key(key: AKey, config: Config = DEFAULT_CONFIG, as_json: Json = False) -> None:
    """Revoke a key, by its id or as a whole. It stops working within 5 seconds everywhere."""
    output.show(on_accounts(config, lambda operator: operator.revoke_key(key)), as_json)


def key_terms(expires: str | None, models: str | None, routes: str | None) -> dict[str, Any]:
    """The terms of a key that were given. Raises `ConfigError`."""
    values: dict[str, Any] = {}
    if expires is not None:
        values["expires_at"] = None if expires == NONE else _end(expires)
    for option, names in (("allowed_models", models), ("allowed_routes", routes)):
        if names is not None:
            values[option] = None if names == ALL_NAMES else [name.strip() for name in names.split(",")]
    return values


def _end(expires: str) -> Any:
    return now() + span(expires, "--expires") if expires[-1:] in UNITS else moment(expires, "--expires")


def span(text: str, option: str) -> timedelta:
    """Such as `30m`, `24h` or `7d`. Raises `ConfigError`."""
    number, unit = text[:-1], text[-1:]
    if unit not in UNITS or not number.isdecimal() or len(number) > 6:
        raise ConfigError(f"{option}: {text!r} is not a time such as 30m, 24h or 7d")
    return timedelta(seconds=int(number) * UNITS[unit])
