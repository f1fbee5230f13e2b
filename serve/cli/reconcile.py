"""`pith reconcile`: the proof that the books add up, or where they do not."""

import json
from typing import Annotated, Any

import typer

from billing.books.books import Books
from billing.books.reconciliation import Difference, Reconciliation
from billing.clock import now
from billing.price import exact_usd
from billing.spool.spool import Spool
from billing.store.database import Database
from serve.cli.ledger_access import on_books
from serve.cli.options import Config, Json
from serve.config.settings import DEFAULT_CONFIG, Settings
from serve.money.ledger_setup import operator


def reconcile(
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="First set every balance to what its rows add up to.")
    ] = False,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """Prove that events, balances, holds, collections and prices agree; exit code 1 where they do not."""

    async def run(database: Database, settings: Settings) -> tuple[list[Difference], Reconciliation]:
        books, spool = Books(database), Spool(settings.billing.spool_path)
        try:
            changed = await books.rebuild(actor=operator(), now=now()) if rebuild else []
            return changed, await books.reconcile(spool)
        finally:
            await spool.close()

    changed, found = on_books(config, run)
    fields = reconciliation_fields(found)
    fields["rebuilt"] = [difference_fields(one) for one in changed]
    typer.echo(json.dumps(fields) if as_json else reconciliation_text(fields))
    if not found.is_clean:
        raise typer.Exit(1)


def reconciliation_fields(found: Reconciliation) -> dict[str, Any]:
    posted, collected = found.total("posted"), found.total("collected")
    return {
        "clean": found.is_clean,
        "workspaces": len(found.balances),
        "events": sum(row.events for row in found.balances),
        "posted_usd": exact_usd(posted),
        "collected_usd": exact_usd(collected),
        "uncollected_usd": exact_usd(posted - collected),
        "held_usd": exact_usd(found.total("held")),
        "written_off_usd": exact_usd(found.written_off_nano_usd),
        "differences": [difference_fields(one) for one in found.differences],
        "mispriced_events": [
            {
                "event_id": one.event_id,
                "workspace_id": one.workspace_id,
                "charged_usd": exact_usd(one.charged.nano_usd),
                "due_usd": exact_usd(one.due.nano_usd),
            }
            for one in found.mispriced
        ],
        "spool_waiting": found.spool_waiting,
        "spool_refused": found.spool_refused,
    }


def difference_fields(one: Difference) -> dict[str, str]:
    return {
        "workspace_id": one.workspace_id,
        "figure": one.figure,
        "stored_usd": exact_usd(one.stored_nano_usd),
        "rebuilt_usd": exact_usd(one.rebuilt_nano_usd),
        "difference_usd": exact_usd(one.stored_nano_usd - one.rebuilt_nano_usd),
    }


def reconciliation_text(fields: dict[str, Any]) -> str:
    lines = [
        f"rebuilt: {one['figure']} of {one['workspace_id']} from {one['stored_usd']} to {one['rebuilt_usd']} USD"
        for one in fields["rebuilt"]
    ]
    lines.append(
        f"{fields['events']} events of {fields['workspaces']} workspaces: posted {fields['posted_usd']} USD = "
        f"collected {fields['collected_usd']} + uncollected {fields['uncollected_usd']}; "
        f"held {fields['held_usd']} USD"
    )
    if fields["written_off_usd"] != exact_usd(0):
        lines.append(
            f"written off: {fields['written_off_usd']} USD of usage, for which the limits had no room"
        )
    lines += [
        f"difference: {one['figure']} of {one['workspace_id']} is {one['stored_usd']} USD in its row and "
        f"{one['rebuilt_usd']} USD from the rows below it: {one['difference_usd']} USD"
        for one in fields["differences"]
    ]
    lines += [
        f"difference: event {one['event_id']} of {one['workspace_id']} was charged {one['charged_usd']} USD, and "
        f"its tokens cost {one['due_usd']} USD by the price list that it names"
        for one in fields["mispriced_events"]
    ]
    if fields["spool_waiting"]:
        lines.append(f"spool: {fields['spool_waiting']} events wait here and are not in the ledger yet")
    if fields["spool_refused"]:
        lines.append(
            f"spool: {fields['spool_refused']} events were refused by the ledger and need an operator"
        )
    lines.append("clean: everything adds up" if fields["clean"] else "NOT clean")
    return "\n".join(lines)
