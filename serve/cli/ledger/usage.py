"""`pith usage`, `pith statement` and `pith receipts`: what was used, what it cost, and what is owed for it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from billing.books.saving import COMPARED_BY, DIMENSIONS, LINES, MIN_CONVERSATIONS, Dimension
from billing.clock import now
from billing.price import exact_usd
from serve.cli import output
from serve.cli.ledger_access import on_books, tell_of_archive
from serve.cli.options import AWorkspace, Config, Json, OfProject, OfWorkspace, Since, Until, period
from serve.config.paths import DEFAULT_CONFIG, ConfigError
from serve.reports.receipts import receipt_fields
from serve.reports.statement import statement_fields
from serve.reports.usage import COLUMNS, COMPARED, SAVINGS, SUMS, comparison_fields, usage_fields

if TYPE_CHECKING:
    from billing.books.holdout import Comparison
    from billing.books.receipts import StoredReceipt
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
        typer.echo(output.as_json(report.rows))
    elif as_csv:
        typer.echo(output.as_csv(report.columns, report.rows), nl=False)
    else:
        typer.echo(report.text if report.rows else "none")


@dataclass(frozen=True, slots=True)
class Report:
    """Rows of these columns for programs, and the same for people."""

    columns: Sequence[str]
    rows: output.Rows
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
    return output.as_table([*groups, *numbers], rows, numbers=numbers)


def compared_table(groups: Sequence[str], rows: output.Rows) -> str:
    """For people: the shares as one text."""
    counts = [name for name in COMPARED if name.endswith(("conversations", "requests"))]
    columns = [*groups, *counts, "measured_saving"]
    return output.as_table(
        columns, [{**row, "measured_saving": _measured_share(row)} for row in rows], numbers=counts
    )


def _measured_share(row: Mapping[str, Any]) -> str:
    share, low, high = (row[name] for name in COMPARED[-3:])
    return TOO_FEW if share is None else f"{share:.1%} ({low:.1%} to {high:.1%})"


if TYPE_CHECKING:
    pass

STATED = ("project", "model", "requests", "prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd")
GROUPS = 2
NOTHING = exact_usd(0)
ADJUSTMENTS = ("id", "at", "kind", "usd", "event_id", "reason")
ARCHIVED = (
    "The events of this month are archived: what compression saved cannot be measured here any more.",
    "",
)
COLLECTIONS = ("id", "cut_at", "usd", "state", "reference", "closed_at")


def statement(
    workspace: AWorkspace,
    month: Annotated[str, typer.Argument(help="Calendar month in UTC, such as 2026-11.")],
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """Print what a workspace owed, used, was asked for and paid in a month."""
    from billing.books.books import Books
    from billing.store.dates import month_bounds

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


def statement_text(fields: dict[str, Any]) -> str:
    asked = "" if fields["month_has_ended"] else f", so far: the month has not ended at {fields['asked_at']}"
    # What was saved is shown only where something was.
    has_savings = any(row["tokens_saved"] or row["compression_usd"] != NOTHING for row in fields["usage"])
    columns = STATED + (SAVINGS if has_savings else ())
    parts = [
        f"Statement of {fields['workspace']} ({fields['workspace_id']}) for {fields['month']} (UTC){asked}",
        "",
        f"Opening balance  {_owed(fields['opening'])}",
        "",
        *_section("Usage", columns, fields["usage"], columns[GROUPS:]),
        f"Used             {fields['used_usd']} USD{_written_off(fields)}",
        *([f"Saved            {_saved(fields)}"] if columns != STATED else []),
        "",
        *_measured(fields["measured_savings"]),
        *(ARCHIVED if fields["events_archived"] else []),
        *_adjusted(fields),
        *_section("Collections cut", COLLECTIONS, fields["collections_cut"], ("usd",)),
        *_section("Collections paid or voided", COLLECTIONS, fields["collections_closed"], ("usd",)),
        f"Paid             {fields['paid_usd']} USD",
        f"Closing balance  {_owed(fields['closing'])}",
    ]
    return "\n".join(parts)


def _adjusted(fields: dict[str, Any]) -> list[str]:
    if not fields["adjustments"]:
        return []
    return [
        *_section("Credits, adjustments and refunds", ADJUSTMENTS, fields["adjustments"], ("usd",))[:-1],
        f"Adjusted         {fields['adjusted_usd']} USD",
        "",
    ]


def _measured(rows: output.Rows) -> list[str]:
    if not rows:
        return []
    lines = compared_table(STATED[:GROUPS], rows).splitlines()
    return [
        "Measured saving of compression, against conversations that were held out (95% interval)",
        *(f"  {line}" for line in lines),
        "",
    ]


def _saved(fields: dict[str, Any]) -> str:
    gross, spent, net = (fields[name] for name in SAVINGS[1:])
    tokens = fields["tokens_saved"]
    return f"{gross} USD by compressing prompts ({tokens} tokens); {spent} USD of compression leave {net} USD"


def _written_off(fields: dict[str, Any]) -> str:
    amount = fields["written_off_usd"]
    return "" if amount == NOTHING else f" ({amount} USD beyond it are written off: the limits had no room)"


def _section(title: str, columns: Sequence[str], rows: output.Rows, numbers: Sequence[str]) -> list[str]:
    body = output.as_table(columns, rows, numbers=numbers) if rows else "none"
    return [title, *(f"  {line}" for line in body.splitlines()), ""]


def _owed(balance: dict[str, str]) -> str:
    return (
        f"{balance['owed_usd']} USD owed "
        f"({balance['in_collections_usd']} in collections, {balance['uncollected_usd']} uncollected)"
    )


def receipts(
    workspace: OfWorkspace = None,
    project: OfProject = None,
    id: Annotated[str | None, typer.Option(help="Only this usage event or request, by id.")] = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option(min=1, help="How many of the latest to print.")] = 1000,
    config: Config = DEFAULT_CONFIG,
) -> None:
    """Print the receipts of compressions as lines of JSON, oldest first."""
    from billing.books.receipts import receipts as read_receipts

    begin, end = period(since, until)
    read = partial(
        read_receipts,
        workspace=workspace,
        project=project,
        id=id,
        since=begin,
        until=end,
        limit=limit,
    )

    async def run(database: Database, settings: Settings) -> list[StoredReceipt]:
        await tell_of_archive(database, settings, "receipts", begin)
        return await database.read(read)

    found = on_books(config, run)
    typer.echo(output.as_json_lines([receipt_fields(one) for one in found]), nl=False)
