"""`pith workspace` and `pith project`: accounts, what they may do and spend, and what they have spent."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from functools import wraps
from inspect import Parameter, signature
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from billing.caller import MAX_WEIGHT, RATES
from billing.labels import listed_tags
from billing.price import NANO_PER_USD
from serve.cli import output
from serve.cli.access import on_accounts, on_books
from serve.cli.options import (
    All,
    AProject,
    AWorkspace,
    Config,
    Json,
    OfWorkspace,
    exact_nano_usd,
    require_one,
)
from serve.config.paths import DEFAULT_CONFIG, ConfigError

workspace_commands = typer.Typer(help="Accounts that pay.", no_args_is_help=True)

Usd = Annotated[str | None, typer.Option(help="US dollars, or `none` for no limit.")]
TIME_ZONE_HELP = "Of its hours, days, weeks and months: an IANA name, such as Europe/Berlin."
RATE_OPTIONS = [f"--{name.replace('_', '-')}" for name in RATES]
# Rate limits by their names; None: no limit.
Rates = dict[str, int | None]
RateLimit = Annotated[int | None, typer.Option(min=0, help="0 for no limit.")]


def with_rates(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for each rate limit in the place of `rates`, which are those that are given."""

    @wraps(command)
    def with_options(**given: Any) -> None:
        limits = {name: given.pop(name) for name in RATES}
        command(**given, rates={name: limit or None for name, limit in limits.items() if limit is not None})

    own = signature(command, eval_str=True)
    options = [Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=RateLimit) for name in RATES]
    parameters = (options if name == "rates" else [one] for name, one in own.parameters.items())
    with_options.__signature__ = own.replace(parameters=list(chain(*parameters)))  # type: ignore[attr-defined]
    return with_options


@workspace_commands.command("create")
@with_rates
def create_workspace(
    name: str,
    limit_usd: Usd = None,
    monthly_limit_usd: Usd = None,
    billing: Annotated[bool, typer.Option(help="Whether requests may be charged.")] = True,
    time_zone: Annotated[str, typer.Option(help=TIME_ZONE_HELP)] = "UTC",
    *,
    rates: Rates,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """Make a workspace."""
    plain = {"billing_enabled": billing, "time_zone": time_zone}
    values = rates | spend_limits(limit_usd, monthly_limit_usd) | plain
    made = on_accounts(
        config,
        lambda operator: operator.create_workspace(name, **values),
        makes_ledger=True,
        makes_pepper=True,
    )
    _show_workspace(made, as_json)


@workspace_commands.command("set")
@with_rates
def set_workspace(
    workspace: AWorkspace,
    limit_usd: Usd = None,
    monthly_limit_usd: Usd = None,
    billing: Annotated[bool | None, typer.Option("--billing/--no-billing")] = None,
    time_zone: Annotated[str | None, typer.Option(help=TIME_ZONE_HELP)] = None,
    *,
    rates: Rates,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """Change a workspace's limits or its time zone, or switch its billing on or off; what is not named stays."""
    plain = named(billing_enabled=billing, time_zone=time_zone)
    values = rates | spend_limits(limit_usd, monthly_limit_usd) | plain
    options = ("--limit-usd", "--monthly-limit-usd", "--billing/--no-billing", "--time-zone", *RATE_OPTIONS)
    require_one(values, *options)
    _show_workspace(
        on_accounts(config, lambda operator: operator.change_workspace(workspace, values)), as_json
    )


@workspace_commands.command("list")
def list_workspaces(all_: All = False, config: Config = DEFAULT_CONFIG, as_json: Json = False) -> None:
    """List workspaces with what they have spent."""
    output.show_unrevoked(on_accounts(config, lambda operator: operator.workspaces()), all_, as_json)


@workspace_commands.command("revoke")
def revoke_workspace(workspace: AWorkspace, config: Config = DEFAULT_CONFIG, as_json: Json = False) -> None:
    """Revoke a workspace with all its keys."""
    _show_workspace(on_accounts(config, lambda operator: operator.revoke_workspace(workspace)), as_json)


def named(**options: Any) -> dict[str, Any]:
    """Those that were."""
    return {name: value for name, value in options.items() if value is not None}


def _show_workspace(row: dict[str, Any], as_json: bool) -> None:
    """Its state is in the lists alone."""
    output.show({name: value for name, value in row.items() if name != "state"}, as_json)


def spend_limits(limit_usd: str | None, monthly_limit_usd: str | None) -> dict[str, Any]:
    """The limits that were given, in nano-USD; None is no limit. Raises `ConfigError`."""
    values = {}
    if limit_usd is not None:
        values["spend_limit_nano_usd"] = nano_usd(limit_usd, "--limit-usd")
    if monthly_limit_usd is not None:
        values["monthly_limit_nano_usd"] = nano_usd(monthly_limit_usd, "--monthly-limit-usd")
    return values


def nano_usd(text: str, option: str) -> int | None:
    """An amount from the command line. Raises `ConfigError` if it is not one."""
    if text.lower() == "none":
        return None
    from billing.accounts.keys import MAX_LIMIT_NANO_USD

    most = Decimal(MAX_LIMIT_NANO_USD) / NANO_PER_USD
    found = exact_nano_usd(text, most)
    if found is None or found < 0:
        raise ConfigError(
            f"{option}: {text!r} is not an amount of US dollars from 0 to {most} with at most 9 decimals"
        )
    return found


project_commands = typer.Typer(help="Sets of keys with their own rate limits.", no_args_is_help=True)

WEIGHT_HELP = "Its share of places and turns relative to other projects that wait for the same engine."
Weight = Annotated[int, typer.Option(min=1, max=MAX_WEIGHT, help=WEIGHT_HELP)]
NewWeight = Annotated[int | None, typer.Option(min=1, max=MAX_WEIGHT, help=WEIGHT_HELP)]
COMPRESSION_HELP = (
    "How its chats are compressed unless a request says so itself, as JSON with the fields of a request's "
    """`compression`, such as '{"target_ratio": 0.3}'; `off`: not at all."""
)
Compression = Annotated[str | None, typer.Option(metavar="JSON|off", help=COMPRESSION_HELP)]
OFF = "off"
PROOF_HELP = "Whether its replies carry promises that their usage will be in the transparency log."
PERSON_HELP = "Whether its requests have to name a person (safety_identifier, user)."
TAGS_HELP = "Tags that its requests may name, with commas between; none for all."
AllowedTags = Annotated[str | None, typer.Option(metavar="TAGS|none", help=TAGS_HELP)]
LABEL_RATES_HELP = (
    "Rate limits of each person (`*`) and by tag, as JSON, such as "
    """'{"*": {"requests_per_minute": 20}, "support": {"tokens_per_day": 100000}}'; `none`: none."""
)
LabelRates = Annotated[str | None, typer.Option(metavar="JSON|none", help=LABEL_RATES_HELP)]


@project_commands.command("create")
@with_rates
def create_project(
    workspace: AWorkspace,
    name: str,
    metered: Annotated[bool, typer.Option(help="Whether usage is recorded and charged.")] = True,
    *,
    rates: Rates,
    weight: Weight = 1,
    compression: Compression = None,
    proof: Annotated[bool, typer.Option(help=PROOF_HELP)] = False,
    person_required: Annotated[bool, typer.Option(help=PERSON_HELP)] = False,
    allowed_tags: AllowedTags = None,
    label_rates: LabelRates = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """Make a project in a workspace."""
    plain = {"weight": weight, "metered": metered, "proof": proof, "person_required": person_required}
    values = rates | plain | _parsed(allowed_tags, label_rates, compression, config)
    made = on_accounts(config, lambda operator: operator.create_project(workspace, name, **values))
    output.show(made, as_json)


@project_commands.command("set")
@with_rates
def set_project(
    project: AProject,
    metered: Annotated[
        bool | None, typer.Option("--metered/--no-metered", help="Whether usage is recorded and charged.")
    ] = None,
    *,
    rates: Rates,
    weight: NewWeight = None,
    compression: Compression = None,
    proof: Annotated[bool | None, typer.Option("--proof/--no-proof", help=PROOF_HELP)] = None,
    person_required: Annotated[
        bool | None, typer.Option("--person-required/--no-person-required", help=PERSON_HELP)
    ] = None,
    allowed_tags: AllowedTags = None,
    label_rates: LabelRates = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """Change a project's rate limits, its weight, how its chats are compressed, whether it is metered, whether its
    replies carry promises, or what its requests name; what is not named stays."""
    plain = named(weight=weight, metered=metered, proof=proof, person_required=person_required)
    values = rates | plain | _parsed(allowed_tags, label_rates, compression, config)
    require_one(
        values,
        *("--metered/--no-metered", *RATE_OPTIONS, "--weight", "--compression", "--proof/--no-proof"),
        *("--person-required/--no-person-required", "--allowed-tags", "--label-rates"),
    )
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


def _parsed(tags: str | None, rates: str | None, compression: str | None, config: Path) -> dict[str, Any]:
    """Those of these settings that were given, as the ledger takes them. Raises `ConfigError`."""
    values: dict[str, Any] = {}
    if tags is not None:
        values["allowed_tags"] = None if tags == "none" else listed_tags(tags)
    if rates is not None:
        try:
            values["label_rates"] = None if rates == "none" else json.loads(rates)
        except ValueError as error:
            raise ConfigError(f"--label-rates: {error}") from error
    if compression is not None:
        values["compression"] = None if compression == OFF else _stored_default(compression, config)
    return values


def _stored_default(compression: str, config: Path) -> str:
    """The option as the ledger keeps it. Raises `ConfigError`."""
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
