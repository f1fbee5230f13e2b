"""`pith audit`: who changed which account or collection, and when."""

import json
from typing import Annotated, Any

import typer

from serve.cli.ledger_access import on_books
from serve.cli.options import Config, Json, OfWorkspace, Since, Until, period, stamp
from serve.cli.output import table
from serve.config.paths import DEFAULT_CONFIG


def audit(
    workspace: OfWorkspace = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option(min=1, help="How many of the latest entries to print.")] = 100,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """Who changed which account or collection, and when; oldest first."""
    from billing.books.books import Books

    begin, end = period(since, until)
    entries = on_books(
        config,
        lambda database, _: Books(database).audit_log(
            workspace=workspace, since=begin, until=end, limit=limit
        ),
    )
    rows: list[dict[str, Any]] = [
        {
            "at": stamp(entry.at),
            "actor": entry.actor,
            "action": entry.action,
            "workspace_id": entry.workspace_id,
            "subject": entry.subject,
            "details": entry.details if as_json else json.dumps(entry.details),
        }
        for entry in entries
    ]
    if as_json:
        typer.echo(table.as_json(rows))
    else:
        typer.echo(table.as_table(list(rows[0]), rows) if rows else "none")
