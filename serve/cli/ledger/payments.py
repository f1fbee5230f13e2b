"""`pith collections` and `pith adjustment`: what workspaces are asked to pay, and credits, adjustments and refunds."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from billing.collections.collection import State
from billing.errors import LedgerUnavailable
from serve.cli.access import on_books
from serve.cli.completion import workspaces
from serve.cli.options import (
    AWorkspace,
    Config,
    Json,
    OfWorkspace,
    Since,
    Until,
    exact_nano_usd,
    moment,
    period,
)
from serve.cli.output import show_rows
from serve.config.paths import DEFAULT_CONFIG, ConfigError
from serve.operator.rows import as_csv, as_json_lines

if TYPE_CHECKING:
    from serve.operator.operator import Operator

    # What makes an adjustment, by an idempotency key.
    Make = Callable[[Operator, str], Awaitable[dict[str, Any]]]

collection_commands = typer.Typer(help="What workspaces are asked to pay.", no_args_is_help=True)

COLLECTION_COLUMNS = (
    "id",
    "workspace",
    "usd",
    "state",
    "reference",
    "created_at",
    "handed_over_at",
    "closed_at",
    "note",
)


@collection_commands.command("list")
def list_collections(
    workspace: OfWorkspace = None,
    state: Annotated[State | None, typer.Option(help="Only in this state.")] = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """List collections, oldest first."""
    found = on_books(config, lambda operator: operator.collections(workspace=workspace, state=state))
    show_rows(found, as_json, COLLECTION_COLUMNS, numbers=("usd",))


@collection_commands.command("mark")
def mark_collection(
    collection: Annotated[str, typer.Argument(help="Id of the collection.")],
    state: Annotated[State, typer.Argument(help="`open` retries one that failed.")],
    reference: Annotated[str | None, typer.Option(help="What the payment system calls it.")] = None,
    note: Annotated[str | None, typer.Option(help="Why, for later readers.")] = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """Record what became of a collection. `paid` and `void` are final."""
    marked = on_books(
        config,
        lambda operator: operator.mark_collection(collection, state, reference=reference, note=note),
    )
    show_rows([marked], as_json, COLLECTION_COLUMNS, numbers=("usd",))


@collection_commands.command("cut")
def cut_collection(
    workspace: AWorkspace,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """Ask for a workspace's uncollected whole cents now, below the threshold too (for a final bill, say)."""
    made = on_books(config, lambda operator: operator.cut_collection(workspace))
    show_rows(made, as_json, COLLECTION_COLUMNS, numbers=("usd",))


@collection_commands.command("export")
def export_collections(
    format: Annotated[Literal["csv", "jsonl"], typer.Option(help="What to write on stdout.")] = "csv",
    since: Since = None,
    until: Until = None,
    config: Config = DEFAULT_CONFIG,
) -> None:
    """Write the collections cut in a period, for another program."""
    begin, end = period(since, until)
    rows = on_books(config, lambda operator: operator.collections(since=begin, until=end))
    from serve.operator.money import Collection

    columns = tuple(Collection.model_fields)
    typer.echo(as_csv(columns, rows) if format == "csv" else as_json_lines(rows), nl=False)


adjustment_commands = typer.Typer(help="Credits, adjustments and refunds.", no_args_is_help=True)

ADJUSTMENT_COLUMNS = (
    "id",
    "created_at",
    "workspace",
    "kind",
    "usd",
    "event_id",
    "reason",
    "actor",
    "idempotency_key",
)
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
        config,
        key,
        as_json,
        lambda operator, name: operator.credit(workspace, **terms, idempotency_key=name),
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
        config,
        key,
        as_json,
        lambda operator, name: operator.adjust(workspace, **terms, idempotency_key=name),
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

    async def make(operator: Operator, name: str) -> dict[str, Any]:
        of = event or await operator.event_of_request(workspace or "", request_id or "", since=begin)
        return await operator.refund(of, nano_usd=amount, reason=reason, idempotency_key=name)

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
        lambda operator: operator.list_adjustments(workspace=workspace, since=begin, until=end, limit=limit),
    )
    show_rows(found, as_json, ADJUSTMENT_COLUMNS, numbers=("usd",))


def show_made(config: Path, key: str | None, as_json: bool, make: Make) -> None:
    """Raises `LedgerUnavailable` with the key, by which the same can be asked for again without being made twice."""
    name = key or f"cli-{secrets.token_hex(8)}"
    try:
        made = on_books(config, lambda operator: make(operator, name))
    except LedgerUnavailable as error:
        raise LedgerUnavailable(
            f"{error}; it is unknown whether it was made: run again with --key {shlex.quote(name)}"
        ) from error
    show_rows([made], as_json, ADJUSTMENT_COLUMNS, numbers=("usd",))


def nano_usd(text: str) -> int:
    """An amount from the command line, in nano-USD. Raises `ConfigError` if it is none, or 0."""
    found = exact_nano_usd(text, MOST_USD)
    if not found:
        raise ConfigError(
            f"--usd: {text!r} is not an amount of US dollars up to {MOST_USD}, other than 0, with at most 9 decimals"
        )
    return found
