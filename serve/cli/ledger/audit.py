"""`pith audit`, the log of who changed what, and `pith reconcile`, the proof that the books add up."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from billing.clock import now
from billing.price import exact_usd
from serve.cli import output
from serve.cli.ledger_access import on_books
from serve.cli.options import Config, Json, OfWorkspace, Since, Until, period, stamp
from serve.config.paths import DEFAULT_CONFIG
from serve.reports.reconciliation import difference_fields, reconciliation_fields

if TYPE_CHECKING:
    from billing.books.reconciliation import Difference, Reconciliation
    from billing.store.database import Database
    from serve.config.settings import Settings


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
        typer.echo(output.as_json(rows))
    else:
        typer.echo(output.as_table(list(rows[0]), rows) if rows else "none")


def reconcile(
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="First set every balance to what its rows add up to.")
    ] = False,
    full: Annotated[
        bool,
        typer.Option("--full", help="Read every event again, also those that were proven before."),
    ] = False,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """Prove that events, adjustments, balances, holds, collections and prices agree; exit code 1 where they do not."""
    from billing.books.books import Books
    from billing.ledger.spool import Spool
    from serve.money.ledger_setup import operator

    async def run(database: Database, settings: Settings) -> tuple[list[Difference], Reconciliation]:
        books, spool = Books(database), Spool(settings.billing.spool_path)
        try:
            changed = await books.rebuild(actor=operator(), now=now()) if rebuild else []
            return changed, await books.reconcile(spool, full=full)
        finally:
            await spool.close()

    changed, found = on_books(config, run)
    fields = reconciliation_fields(found)
    fields["rebuilt"] = [difference_fields(one) for one in changed]
    typer.echo(json.dumps(fields) if as_json else reconciliation_text(fields))
    if not found.is_clean:
        raise typer.Exit(1)


def reconciliation_text(fields: dict[str, Any]) -> str:
    lines = [
        f"rebuilt: {one['figure']} of {one['workspace_id']} from {one['stored_usd']} to {one['rebuilt_usd']} USD"
        for one in fields["rebuilt"]
    ]
    lines.append(
        f"{fields['events']} events of {fields['workspaces']} workspaces: posted {fields['posted_usd']} USD = "
        f"collected {fields['collected_usd']} + uncollected {fields['uncollected_usd']}{_credited(fields)}; "
        f"held {fields['held_usd']} USD"
    )
    if fields["written_off_usd"] != exact_usd(0):
        lines.append(
            f"written off: {fields['written_off_usd']} USD of usage, for which the limits had no room"
        )
    lines += _differences(fields)
    if fields["spool_waiting"]:
        lines.append(f"spool: {fields['spool_waiting']} events wait here and are not in the ledger yet")
    if fields["spool_refused"]:
        lines.append(
            f"spool: {fields['spool_refused']} events were refused by the ledger and need an operator"
        )
    lines.append("clean: everything adds up" if fields["clean"] else "NOT clean")
    return "\n".join(lines)


def _differences(fields: dict[str, Any]) -> list[str]:
    return [
        *(
            f"difference: {one['figure']} of {one['workspace_id']} is {one['stored_usd']} USD in its row and "
            f"{one['rebuilt_usd']} USD from the rows below it: {one['difference_usd']} USD"
            for one in fields["differences"]
        ),
        *(
            f"difference: event {one['event_id']} of {one['workspace_id']} {_said(wrong)}"
            for one in fields["mispriced_events"]
            for wrong in one["wrong"]
        ),
        *(
            f"difference: adjustment {one['adjustment_id']} of {one['workspace_id']} {one['problem']}"
            for one in fields["wrong_adjustments"]
        ),
        *(
            f"difference: {one['table']} has {one['stored_events']} events of {one['stored_usd']} USD for "
            f"{one['workspace_id']} in {one['month']}, and its events are {one['due_events']} of {one['due_usd']} USD"
            for one in fields["wrong_sums"]
        ),
        *(
            f"difference: {one['table']} of {one['workspace_id']} has {one['stored']} for {' '.join(one['key'])}, and "
            f"its events add up to {one['due']}"
            for one in fields["wrong_rows"]
        ),
        *(
            f"difference: usage_months of {one['workspace_id']} has {one['stored']} for {' '.join(one['key'])}, and "
            f"its days add up to {one['due']}"
            for one in fields["unequal_sums"]
        ),
        *(f"difference: archived {one['month']}: {one['problem']}" for one in fields["wrong_archives"]),
        *(
            f"difference: the events from id {one['from_id'] or '(the first)'} to {one['until_id']} are not those that "
            f"were proven: {one['events_now']} now, {one['events_then']} then"
            for one in fields["changed_events"]
        ),
    ]


def _credited(fields: dict[str, Any]) -> str:
    if not fields["adjustments"]:
        return ""
    return f" + credited {fields['credited_usd']} ({fields['adjustments']} adjustments)"


def _said(wrong: dict[str, Any]) -> str:
    stored, due = wrong["stored_usd"], wrong["due_usd"]
    if wrong["figure"] == "cost":
        return f"was charged {stored} USD, and its tokens cost {due} USD by the price list that it names"
    if wrong["figure"] == "saved":
        return f"says that it saved {stored} USD, and saved {due} USD by the price list that it names"
    if due is None:
        return "names an event of the same request that is not there, or does not name it"
    return f"says that its compression cost {stored} USD, and the event of that has {due} USD"
