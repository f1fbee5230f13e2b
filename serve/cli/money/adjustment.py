"""`pith adjustment`: credits, adjustments and refunds, made and listed."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Awaitable, Callable, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from billing.errors import LedgerUnavailable
from billing.price import NANO_PER_USD
from serve.cli.ledger_access import on_books
from serve.cli.options import AWorkspace, Config, Json, OfWorkspace, Since, Until, moment, period
from serve.cli.output import table
from serve.cli.verbs.completion import workspaces
from serve.config.errors import ConfigError
from serve.config.paths import DEFAULT_CONFIG
from serve.reports.adjustments import adjustment_fields

if TYPE_CHECKING:
    from billing.adjustments.adjustment import Adjustment
    from billing.adjustments.adjustments import Adjustments

    # What makes one, by an idempotency key.
    Make = Callable[[Adjustments, str], Awaitable[Adjustment]]

adjustment_commands = typer.Typer(help="Credits, adjustments and refunds.", no_args_is_help=True)

SHOWN = ("id", "created_at", "workspace", "kind", "usd", "event_id", "reason", "actor", "idempotency_key")
MOST_USD = 10**9

Usd = Annotated[str, typer.Option("--usd", help="US dollars, above 0, with at most 9 decimals.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; it is in statements and in the audit log.")]
Key = Annotated[
    str | None,
    typer.Option("--key", help="Idempotency key: the same twice is one adjustment. A new one, unless given."),
]


@adjustment_commands.command("credit")
def credit(
    workspace: AWorkspace,
    usd: Usd,
    reason: Reason,
    key: Key = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """Lower what a workspace owes: as goodwill, or because it paid in advance."""
    terms: dict[str, Any] = {"nano_usd": nano_usd(usd), "reason": reason}
    show_made(
        config, key, as_json, lambda found, name: found.credit(workspace, **terms, idempotency_key=name)
    )


@adjustment_commands.command("adjust")
def adjust(
    workspace: AWorkspace,
    usd: Annotated[str, typer.Option("--usd", help="US dollars: 2.50 is owed more, -2.50 is owed less.")],
    reason: Reason,
    key: Key = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """Raise or lower what a workspace owes."""
    terms: dict[str, Any] = {"nano_usd": nano_usd(usd), "reason": reason}
    show_made(
        config, key, as_json, lambda found, name: found.adjust(workspace, **terms, idempotency_key=name)
    )


@adjustment_commands.command("refund")
def refund(
    reason: Reason,
    event: Annotated[str | None, typer.Argument(help="Id of the usage event.")] = None,
    request_id: Annotated[
        str | None, typer.Option("--request-id", help="Instead of an event: the X-Request-ID of its request.")
    ] = None,
    workspace: Annotated[
        str | None, typer.Option(help="With --request-id: whose request it was.", autocompletion=workspaces)
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="With --request-id: how far to look back, unless for 35 days.")
    ] = None,
    usd: Annotated[
        str | None, typer.Option("--usd", help="US dollars; all that is left of its charge, unless given.")
    ] = None,
    key: Key = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """Give back what was charged for a usage event, or a part of it."""
    begin = moment(since, "--since")
    if (event is None) == (request_id is None) or (request_id is None) != (workspace is None):
        raise ConfigError("name the usage event, or the request by --request-id and --workspace")
    amount = None if usd is None else nano_usd(usd)

    async def make(found: Adjustments, name: str) -> Adjustment:
        of = event or await found.event_of_request(workspace or "", request_id or "", since=begin)
        return await found.refund(of, nano_usd=amount, reason=reason, idempotency_key=name)

    show_made(config, key, as_json, make)


@adjustment_commands.command("list")
def list_adjustments(
    workspace: OfWorkspace = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option(min=1, help="How many of the latest to print.")] = 1000,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """List credits, adjustments and refunds, oldest first."""
    begin, end = period(since, until)
    found = on_books(
        config,
        lambda database, _: adjustments(database).listed(
            workspace=workspace, since=begin, until=end, limit=limit
        ),
    )
    show(found, as_json)


def show_made(config: Path, key: str | None, as_json: bool, make: Make) -> None:
    """Raises `LedgerUnavailable` with the key, by which the same can be asked for again without being made twice."""
    name = key or new_key()
    try:
        made = on_books(config, lambda database, _: make(adjustments(database), name))
    except LedgerUnavailable as error:
        raise LedgerUnavailable(
            f"{error}; it is unknown whether it was made: run again with --key {shlex.quote(name)}"
        ) from error
    show([made], as_json)


def adjustments(database: Any) -> Adjustments:
    from billing.adjustments.adjustments import Adjustments
    from serve.money.ledger_setup import operator

    return Adjustments(database, actor=operator())


def new_key() -> str:
    return f"cli-{secrets.token_hex(8)}"


def nano_usd(text: str) -> int:
    """An amount from the command line, in nano-USD. Raises `ConfigError` if it is none, or 0."""
    try:
        usd = Decimal(text)
    except InvalidOperation:
        usd = Decimal("NaN")
    # The bound is checked before anything is computed: a million digits would take minutes.
    if not (usd.is_finite() and 0 < abs(usd) <= MOST_USD and usd * NANO_PER_USD == int(usd * NANO_PER_USD)):
        raise ConfigError(
            f"--usd: {text!r} is not an amount of US dollars up to {MOST_USD}, other than 0, with at most 9 decimals"
        )
    return int(usd * NANO_PER_USD)


def show(found: Sequence[Adjustment], as_json: bool) -> None:
    rows = [adjustment_fields(one) for one in found]
    if as_json:
        typer.echo(table.as_json(rows))
    else:
        typer.echo(table.as_table(SHOWN, rows, numbers=("usd",)) if rows else "none")
