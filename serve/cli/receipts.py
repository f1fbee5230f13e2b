"""`pith receipts`: what the ledger keeps of each compression, as JSON lines for programs."""

import json
from functools import partial
from typing import Annotated, Any

import typer

from billing.books.receipts import StoredReceipt
from billing.books.receipts import receipts as read_receipts
from billing.price import exact_usd
from serve.cli import table
from serve.cli.ledger_access import on_books
from serve.cli.options import Config, OfWorkspace, Since, Until, period, stamp
from serve.config.settings import DEFAULT_CONFIG


def receipts(
    workspace: OfWorkspace = None,
    project: Annotated[str | None, typer.Option(help="Only this project (id or WORKSPACE/NAME).")] = None,
    id: Annotated[str | None, typer.Option(help="Only this usage event or request, by id.")] = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option(min=1, help="How many of the latest to print.")] = 1000,
    config: Config = DEFAULT_CONFIG,
) -> None:
    """Print the receipts of compressions as lines of JSON, oldest first."""
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
    found = on_books(config, lambda database, _: database.read(read))
    typer.echo(table.as_json_lines([_fields(one) for one in found]), nl=False)


def _fields(one: StoredReceipt) -> dict[str, Any]:
    return {
        "event_id": one.event_id,
        "request_id": one.request_id,
        "workspace": one.workspace,
        "project": one.project,
        "model": one.model_id,
        "created_at": stamp(one.created_at),
        "settled_at": stamp(one.settled_at),
        "charged_usd": exact_usd(one.charged_nano_usd),
        "receipt": json.loads(one.receipt),
    }
