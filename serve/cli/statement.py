"""`pith statement`: what a workspace owed, used, was asked for and paid in a month, as a page or as JSON."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import typer

from billing.books.books import Books
from billing.books.statement import Balance, Statement
from billing.clock import now
from billing.collections.collection import Collection
from billing.price import exact_usd
from billing.store.dates import month_bounds
from serve.cli import table
from serve.cli.ledger_access import on_books
from serve.cli.options import Config, Json, stamp
from serve.cli.usage import usage_fields
from serve.config.settings import DEFAULT_CONFIG, ConfigError

USAGE = ("project", "model", "requests", "prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd")
NUMBERS = USAGE[2:]
COLLECTIONS = ("id", "cut_at", "usd", "state", "reference", "closed_at")


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


def statement_fields(found: Statement, asked_at: datetime) -> dict[str, Any]:
    """The statement in plain values, all money as exact decimal text."""
    return {
        "workspace": found.workspace_name,
        "workspace_id": found.workspace_id,
        "month": found.month,
        "since": stamp(found.since),
        "until": stamp(found.until),
        "month_has_ended": asked_at >= found.until,
        "asked_at": stamp(asked_at),
        "opening": _balance(found.opening),
        "usage": [usage_fields(line) for line in found.usage],
        "used_usd": exact_usd(found.used_nano_usd),
        "written_off_usd": exact_usd(found.written_off_nano_usd),
        "collections_cut": [_collection(one) for one in found.cut],
        "collections_closed": [_collection(one) for one in found.closed],
        "paid_usd": exact_usd(found.paid_nano_usd),
        "closing": _balance(found.closing),
    }


def statement_text(fields: dict[str, Any]) -> str:
    asked = "" if fields["month_has_ended"] else f", so far: the month has not ended at {fields['asked_at']}"
    parts = [
        f"Statement of {fields['workspace']} ({fields['workspace_id']}) for {fields['month']} (UTC){asked}",
        "",
        f"Opening balance  {_owed(fields['opening'])}",
        "",
        *_section("Usage", USAGE, fields["usage"], NUMBERS),
        f"Used             {fields['used_usd']} USD{_written_off(fields)}",
        "",
        *_section("Collections cut", COLLECTIONS, fields["collections_cut"], ("usd",)),
        *_section("Collections paid or voided", COLLECTIONS, fields["collections_closed"], ("usd",)),
        f"Paid             {fields['paid_usd']} USD",
        f"Closing balance  {_owed(fields['closing'])}",
    ]
    return "\n".join(parts)


def _written_off(fields: dict[str, Any]) -> str:
    amount = fields["written_off_usd"]
    return (
        "" if amount == exact_usd(0) else f" ({amount} USD beyond it are written off: the limits had no room)"
    )


def _section(title: str, columns: Sequence[str], rows: table.Rows, numbers: Sequence[str]) -> list[str]:
    body = table.as_table(columns, rows, numbers=numbers) if rows else "none"
    return [title, *(f"  {line}" for line in body.splitlines()), ""]


def _balance(balance: Balance) -> dict[str, str]:
    return {
        "owed_usd": exact_usd(balance.owed_nano_usd),
        "in_collections_usd": exact_usd(balance.asked_nano_usd),
        "uncollected_usd": exact_usd(balance.uncollected_nano_usd),
    }


def _owed(balance: dict[str, str]) -> str:
    return (
        f"{balance['owed_usd']} USD owed "
        f"({balance['in_collections_usd']} in collections, {balance['uncollected_usd']} uncollected)"
    )


def _collection(one: Collection) -> dict[str, Any]:
    return {
        "id": one.id,
        "cut_at": stamp(one.created_at),
        "cents": one.cents,
        "usd": exact_usd(one.nano_usd),
        "state": one.state,
        "reference": one.reference,
        "closed_at": stamp(one.closed_at),
    }
