"""`pith collections`: what workspaces were asked to pay, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from billing.clock import now
from billing.collections.collection import Collection, State
from serve.cli.ledger_access import on_books
from serve.cli.options import AWorkspace, Config, Json, OfWorkspace, Since, Until, period
from serve.cli.output import table
from serve.config.paths import DEFAULT_CONFIG
from serve.reports.collections import EXPORTED, collection_fields

if TYPE_CHECKING:
    from billing.collections.collector import Collector

collection_commands = typer.Typer(help="What workspaces are asked to pay.", no_args_is_help=True)

SHOWN = ("id", "workspace", "usd", "state", "reference", "created_at", "handed_over_at", "closed_at", "note")


@collection_commands.command("list")
def list_collections(
    workspace: OfWorkspace = None,
    state: Annotated[State | None, typer.Option(help="Only in this state.")] = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """List collections, oldest first."""
    found = on_books(config, lambda database, _: collector(database).listed(workspace=workspace, state=state))
    show(found, as_json)


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
        lambda database, _: collector(database).mark(
            collection, state, reference=reference, note=note, now=now()
        ),
    )
    show([marked], as_json)


@collection_commands.command("cut")
def cut_collection(
    workspace: AWorkspace,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """Ask for a workspace's uncollected whole cents now, below the threshold too (for a final bill, say)."""
    made = on_books(config, lambda database, _: collector(database).cut_now(workspace, now=now()))
    show([made] if made else [], as_json)


@collection_commands.command("export")
def export_collections(
    format: Annotated[Literal["csv", "jsonl"], typer.Option(help="What to write on stdout.")] = "csv",
    since: Since = None,
    until: Until = None,
    config: Config = DEFAULT_CONFIG,
) -> None:
    """Write the collections cut in a period, for another program."""
    begin, end = period(since, until)
    found = on_books(config, lambda database, _: collector(database).listed(since=begin, until=end))
    rows = [collection_fields(one) for one in found]
    typer.echo(table.as_csv(EXPORTED, rows) if format == "csv" else table.as_json_lines(rows), nl=False)


def collector(database: Any) -> Collector:
    from billing.collections.collector import Collector
    from serve.money.ledger_setup import operator

    return Collector(database, actor=operator())


def show(found: Sequence[Collection], as_json: bool) -> None:
    rows = [collection_fields(one) for one in found]
    if as_json:
        typer.echo(table.as_json(rows))
    else:
        typer.echo(table.as_table(SHOWN, rows, numbers=("usd",)) if rows else "none")
