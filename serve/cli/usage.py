"""`pith usage`: what was used and what it cost, added up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from billing.books.dimensions import COMPARED_BY, DIMENSIONS, LINES, Dimension
from billing.books.saving_interval import MIN_CONVERSATIONS
from serve.cli.ledger_access import on_books
from serve.cli.options import Config, Json, OfWorkspace, Since, Until, period
from serve.cli.output import table
from serve.config.errors import ConfigError
from serve.config.paths import DEFAULT_CONFIG
from serve.reports.usage import COLUMNS, COMPARED, SAVINGS, SUMS, comparison_fields, usage_fields

if TYPE_CHECKING:
    from billing.books.holdout import Comparison
    from billing.books.usage_report import UsageSum
    from billing.store.database import Database
    from serve.config.settings import Settings

TOO_FEW = f"too few to say: under {MIN_CONVERSATIONS} conversations on a side, or nearly all in a few of them"


def usage(
    by: Annotated[
        list[str] | None, typer.Option(help=f"{', '.join(DIMENSIONS)}; give several to combine them.")
    ] = None,
    savings: Annotated[
        bool,
        typer.Option(
            "--savings",
            help="What compression inside chat saved, measured: compressed conversations against held-out ones; by "
            "project and model, unless told otherwise.",
        ),
    ] = False,
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
    of = dimensions_of(by or (LINES if savings else ["workspace"]), COMPARED_BY if savings else DIMENSIONS)
    begin, end = period(since, until)

    async def read(database: Database, _: Settings) -> Report:
        from billing.books.books import Books

        books, groups = Books(database), [column for name in of for column in COLUMNS[name]]
        if savings:
            found = await books.comparisons(of, workspace=workspace, since=begin, until=end)
            return savings_report(groups, found)
        return usage_report(groups, await books.usage(of, workspace=workspace, since=begin, until=end))

    report = on_books(config, read)
    if as_json:
        typer.echo(table.as_json(report.rows))
    elif as_csv:
        typer.echo(table.as_csv(report.columns, report.rows), nl=False)
    else:
        typer.echo(report.text if report.rows else "none")


@dataclass(frozen=True, slots=True)
class Report:
    """Rows of these columns for programs, and the same for people."""

    columns: Sequence[str]
    rows: table.Rows
    text: str


def usage_report(groups: Sequence[str], sums: Sequence[UsageSum]) -> Report:
    rows = [usage_fields(line) for line in sums]
    return Report([*groups, *SUMS, *SAVINGS], rows, _table(groups, sums) if sums else "")


def savings_report(groups: Sequence[str], found: Sequence[Comparison]) -> Report:
    rows = [comparison_fields(one) for one in found]
    return Report([*groups, *COMPARED], rows, compared_table(groups, rows))


def dimensions_of(by: Sequence[str], choices: Sequence[Dimension]) -> list[Dimension]:
    """Raises `ConfigError` for a name that is not among them, or given twice."""
    names = [name.strip() for item in by for name in item.split(",")]
    for name in names:
        if name not in choices:
            raise ConfigError(f"--by: {name!r} is not one of {', '.join(choices)}")
        if names.count(name) > 1:
            raise ConfigError(f"--by: {name} is given twice")
    return cast(list[Dimension], names)


def _table(groups: Sequence[str], sums: Sequence[UsageSum]) -> str:
    """With a last line of totals, and columns of what was saved only where something was."""
    from billing.books.usage_report import total

    numbers = SUMS + (SAVINGS if any(line.has_savings for line in sums) else ())
    last = {**dict.fromkeys(groups, ""), **usage_fields(total(sums)), groups[0]: "total"}
    rows = [*(usage_fields(line) for line in sums), last]
    return table.as_table([*groups, *numbers], rows, numbers=numbers)


def compared_table(groups: Sequence[str], rows: table.Rows) -> str:
    """For people: the shares as one text."""
    counts = [name for name in COMPARED if name.endswith(("conversations", "requests"))]
    columns = [*groups, *counts, "measured_saving"]
    return table.as_table(
        columns, [{**row, "measured_saving": _measured(row)} for row in rows], numbers=counts
    )


def _measured(row: Mapping[str, Any]) -> str:
    share, low, high = (row[name] for name in COMPARED[-3:])
    return TOO_FEW if share is None else f"{share:.1%} ({low:.1%} to {high:.1%})"
