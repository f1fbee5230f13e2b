"""`pith statement`: what a workspace owed, used, was asked for and paid in a month, as a page or as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from billing.clock import now
from billing.price import exact_usd
from serve.cli.ledger_access import on_books
from serve.cli.options import AWorkspace, Config, Json
from serve.cli.output import table
from serve.cli.usage import compared_table
from serve.config.errors import ConfigError
from serve.config.paths import DEFAULT_CONFIG
from serve.reports.statement import statement_fields
from serve.reports.usage import SAVINGS

if TYPE_CHECKING:
    pass

USAGE = ("project", "model", "requests", "prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd")
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
    columns = USAGE + (SAVINGS if has_savings else ())
    parts = [
        f"Statement of {fields['workspace']} ({fields['workspace_id']}) for {fields['month']} (UTC){asked}",
        "",
        f"Opening balance  {_owed(fields['opening'])}",
        "",
        *_section("Usage", columns, fields["usage"], columns[GROUPS:]),
        f"Used             {fields['used_usd']} USD{_written_off(fields)}",
        *([f"Saved            {_saved(fields)}"] if columns != USAGE else []),
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


def _measured(rows: table.Rows) -> list[str]:
    if not rows:
        return []
    lines = compared_table(USAGE[:GROUPS], rows).splitlines()
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


def _section(title: str, columns: Sequence[str], rows: table.Rows, numbers: Sequence[str]) -> list[str]:
    body = table.as_table(columns, rows, numbers=numbers) if rows else "none"
    return [title, *(f"  {line}" for line in body.splitlines()), ""]


def _owed(balance: dict[str, str]) -> str:
    return (
        f"{balance['owed_usd']} USD owed "
        f"({balance['in_collections_usd']} in collections, {balance['uncollected_usd']} uncollected)"
    )
