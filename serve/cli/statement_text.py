"""A monthly statement as `pith statement` prints it: fields for programs, a page for people."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from billing.books.statement import Balance, Statement
from billing.collections.collection import Collection
from billing.price import exact_usd
from serve.cli import table
from serve.cli.ledger_access import stamp

USAGE = ("project", "model", "requests", "prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd")
NUMBERS = USAGE[2:]
COLLECTIONS = ("id", "cut_at", "usd", "state", "reference", "closed_at")


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
        "usage": [
            {
                **line.group,
                "requests": line.requests,
                "prompt_tokens": line.prompt_tokens,
                "completion_tokens": line.completion_tokens,
                "cached_tokens": line.cached_tokens,
                "cost_usd": exact_usd(line.cost_nano_usd),
                "written_off_usd": exact_usd(line.written_off_nano_usd),
            }
            for line in found.usage
        ],
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
