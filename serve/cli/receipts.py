"""`pith receipts`: what the ledger keeps of each compression, as JSON lines for programs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from serve.cli.ledger_access import on_books
from serve.cli.options import Config, OfProject, OfWorkspace, Since, Until, period
from serve.cli.output import table
from serve.cli.output.archived import tell_of_archive
from serve.config.paths import DEFAULT_CONFIG
from serve.reports.receipts import receipt_fields

if TYPE_CHECKING:
    from billing.books.receipts import StoredReceipt
    from billing.store.database import Database
    from serve.config.settings import Settings


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
    typer.echo(table.as_json_lines([receipt_fields(one) for one in found]), nl=False)
