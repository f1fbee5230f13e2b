"""`pith budget`: what workspaces, projects and keys may spend in an hour, a day, a week, a month or in all."""

from __future__ import annotations

from typing import Annotated

import typer

from billing.periods import PeriodKind
from serve.cli import output
from serve.cli.access import on_accounts
from serve.cli.completion import keys
from serve.cli.ledger.accounts import nano_usd
from serve.cli.options import Config, Json, OfProject, OfWorkspace
from serve.config.paths import DEFAULT_CONFIG, ConfigError

budget_commands = typer.Typer(help="What may be spent in an hour, a day, …", no_args_is_help=True)

OfKey = Annotated[str | None, typer.Option("--key", help="Only this key (id or whole).", autocompletion=keys)]
Per = Annotated[PeriodKind, typer.Option(help="In the time zone of the workspace; `total`: in all.")]
LandFrom = Annotated[int | None, typer.Option(help="Chats land from so many percent on; at first 100.")]
AtEnd = Annotated[str | None, typer.Option(help="Chats without room: refuse (at first), flex, model:ID.")]


@budget_commands.command("set")
def set_budget(
    per: Per,
    usd: Annotated[str, typer.Option(help="US dollars.")],
    workspace: OfWorkspace = None,
    project: OfProject = None,
    key: OfKey = None,
    person: Annotated[
        bool, typer.Option("--person", help="With --project: of each person whom its requests name.")
    ] = False,
    tag: Annotated[str | None, typer.Option(help="With --project: of its requests with this tag.")] = None,
    at_end: AtEnd = None,
    land_from_percent: LandFrom = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """Set the budget of a workspace, a project or a key, or of a project's persons or a tag. One that was there
    gets the new limit and counts on."""
    from billing.errors import InvalidAccount
    from billing.ledger.budget_settings import scope_of

    named = {"workspace": workspace, "project": project, "key": key}
    try:
        scope, of = scope_of(named, person=person, tag=tag)
    except InvalidAccount as error:
        raise ConfigError(str(error)) from None
    limit = nano_usd(usd, "--usd")
    if limit is None:
        raise ConfigError("--usd: an amount; pith budget remove ends a budget")
    how = {"tag": tag, "at_end": at_end, "land_from_percent": land_from_percent}
    made = on_accounts(config, lambda operator: operator.set_budget(scope, of, per, limit, **how))
    output.show(made, as_json)


@budget_commands.command("list")
def list_budgets(
    workspace: OfWorkspace = None, config: Config = DEFAULT_CONFIG, as_json: Json = False
) -> None:
    """List budgets, oldest first, with what is used and left of each now, and when it resets."""
    output.show_rows(on_accounts(config, lambda operator: operator.budgets(workspace)), as_json)


@budget_commands.command("remove")
def remove_budget(
    budget: Annotated[str, typer.Argument(help="Id of the budget.")],
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """End a budget."""
    output.show(on_accounts(config, lambda operator: operator.remove_budget(budget)), as_json)
