"""`pith usage|statement|reconcile|audit`: the books as an operator reads them, and the proof that they add up."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, cast

import typer

from billing.books.books import Books, Reconciliation
from billing.books.usage_report import DIMENSIONS, Dimension, UsageSum
from billing.clock import now
from billing.price import exact_usd
from billing.spool.spool import Spool
from billing.store.dates import month_bounds
from serve.cli import table
from serve.cli.accounts import Config, Json
from serve.cli.ledger_access import Since, Until, on_books, period, stamp
from serve.cli.reconciliation_text import difference_fields, reconciliation_fields, reconciliation_text
from serve.cli.statement_text import statement_fields, statement_text
from serve.config.settings import DEFAULT_CONFIG, ConfigError
from serve.money.ledger_setup import operator

OfWorkspace = Annotated[str | None, typer.Option(help="Only of this workspace (id or name).")]
COLUMNS = {
    "workspace": ("workspace", "workspace_id"),
    "project": ("project", "project_id"),
    "key": ("key", "key_id"),
    "model": ("model",),
    "day": ("day",),
    "month": ("month",),
}
SUMS = ("requests", "prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd", "written_off_usd")


def usage(
    by: Annotated[
        list[str] | None, typer.Option(help=f"{', '.join(DIMENSIONS)}; give several to combine them.")
    ] = None,
    workspace: OfWorkspace = None,
    since: Since = None,
    until: Until = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
) -> None:
    """Add up what was used and what it cost; by workspace, unless told otherwise."""
    if as_json and as_csv:
        raise ConfigError("--csv: choose it or --json, not both")
    dimensions = dimensions_of(by or ["workspace"])
    begin, end = period(since, until)
    sums = on_books(
        config,
        lambda database, _: Books(database).usage(dimensions, workspace=workspace, since=begin, until=end),
    )
    columns = [column for name in dimensions for column in COLUMNS[name]] + list(SUMS)
    rows = [usage_fields(line) for line in sums]
    if as_json:
        typer.echo(table.as_json(rows))
    elif as_csv:
        typer.echo(table.as_csv(columns, rows), nl=False)
    else:
        typer.echo(table.as_table(columns, [*rows, totals(columns, sums)], numbers=SUMS) if rows else "none")


def statement(
    workspace: Annotated[str, typer.Argument(help="Workspace (id or name).")],
    month: Annotated[str, typer.Argument(help="Calendar month in UTC, such as 2026-11.")],
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """Print what a workspace owed, used, was asked for and paid in a month."""
    try:
        since, _ = month_bounds(month)
    except ValueError as error:
        raise ConfigError(f"MONTH: {error}") from error
    asked_at = now()
    if since > asked_at:
        raise ConfigError(f"MONTH: {month} has not begun")
    found = on_books(config, lambda database, _: Books(database).statement(workspace, month))
    fields = statement_fields(found, asked_at)
    typer.echo(json.dumps(fields) if as_json else statement_text(fields))


def reconcile(
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="First set every balance to what its rows add up to.")
    ] = False,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """Prove that events, balances, holds, collections and prices agree; exit code 1 where they do not."""

    async def run(database: Any, settings: Any) -> tuple[Any, Reconciliation]:
        books, spool = Books(database), Spool(settings.billing.spool_path)
        try:
            changed = await books.rebuild(actor=operator(), now=now()) if rebuild else []
            return changed, await books.reconcile(spool)
        finally:
            await spool.close()

    changed, found = on_books(config, run)
    fields = reconciliation_fields(found)
    fields["rebuilt"] = [difference_fields(one) for one in changed]
    typer.echo(json.dumps(fields) if as_json else reconciliation_text(fields))
    if not found.is_clean:
        raise typer.Exit(1)


def audit(
    workspace: OfWorkspace = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option(min=1, help="The last so many entries.")] = 100,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """Who changed which account or collection, and when; oldest first."""
    begin, end = period(since, until)
    entries = on_books(
        config,
        lambda database, _: Books(database).audit_log(
            workspace=workspace, since=begin, until=end, limit=limit
        ),
    )
    rows: list[dict[str, Any]] = [
        {
            "at": stamp(entry.at),
            "actor": entry.actor,
            "action": entry.action,
            "workspace_id": entry.workspace_id,
            "subject": entry.subject,
            "details": entry.details if as_json else json.dumps(entry.details),
        }
        for entry in entries
    ]
    if as_json:
        typer.echo(table.as_json(rows))
    else:
        typer.echo(table.as_table(list(rows[0]), rows) if rows else "none")


def dimensions_of(by: Sequence[str]) -> list[Dimension]:
    """Raises `ConfigError` for one that is none, or that stands twice."""
    names = [name.strip() for item in by for name in item.split(",")]
    for name in names:
        if name not in DIMENSIONS:
            raise ConfigError(f"--by: {name!r} is none of {', '.join(DIMENSIONS)}")
        if names.count(name) > 1:
            raise ConfigError(f"--by: {name} stands twice")
    return cast(list[Dimension], names)


def usage_fields(line: UsageSum) -> dict[str, Any]:
    return {
        **line.group,
        "requests": line.requests,
        "prompt_tokens": line.prompt_tokens,
        "completion_tokens": line.completion_tokens,
        "cached_tokens": line.cached_tokens,
        "cost_usd": exact_usd(line.cost_nano_usd),
        "written_off_usd": exact_usd(line.written_off_nano_usd),
    }


def totals(columns: Sequence[str], sums: Sequence[UsageSum]) -> dict[str, Any]:
    """The last line of a table."""
    total = UsageSum(
        {name: "" for name in columns},
        sum(line.requests for line in sums),
        sum(line.prompt_tokens for line in sums),
        sum(line.completion_tokens for line in sums),
        sum(line.cached_tokens for line in sums),
        sum(line.cost_nano_usd for line in sums),
        sum(line.written_off_nano_usd for line in sums),
    )
    return {**usage_fields(total), columns[0]: "total"}
