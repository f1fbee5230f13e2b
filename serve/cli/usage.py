"""`pith usage`: what was used and what it cost, added up."""

from collections.abc import Sequence
from typing import Annotated, Any, cast

import typer

from billing.books.books import Books
from billing.books.usage_report import DIMENSIONS, Dimension, UsageSum
from billing.price import exact_usd
from serve.cli import table
from serve.cli.ledger_access import on_books
from serve.cli.options import Config, Json, OfWorkspace, Since, Until, period
from serve.config.settings import DEFAULT_CONFIG, ConfigError

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
        raise ConfigError("--csv and --json cannot be used together")
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


def dimensions_of(by: Sequence[str]) -> list[Dimension]:
    """Raises `ConfigError` for a name that is unknown, or given twice."""
    names = [name.strip() for item in by for name in item.split(",")]
    for name in names:
        if name not in DIMENSIONS:
            raise ConfigError(f"--by: {name!r} is not one of {', '.join(DIMENSIONS)}")
        if names.count(name) > 1:
            raise ConfigError(f"--by: {name} is given twice")
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
