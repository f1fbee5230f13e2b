"""`pith audit`, the log of who changed what, and `pith reconcile`, the proof that the books add up."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from billing.price import exact_usd
from serve.cli.ledger_access import on_books
from serve.cli.options import Config, Json, OfWorkspace, Since, Until, period
from serve.cli.output import show_rows
from serve.config.paths import DEFAULT_CONFIG

if TYPE_CHECKING:
    from serve.operator.operator import Operator


def audit(
    workspace: OfWorkspace = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option(min=1, help="How many of the latest entries to print.")] = 100,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """Print the log of changes: who changed which account or collection, and when; oldest first."""
    begin, end = period(since, until)
    found = on_books(
        config,
        lambda operator: operator.audit_log(workspace=workspace, since=begin, until=end, limit=limit),
    )
    # A table shows them as a program would read them.
    rows = found if as_json else [{**one, "details": json.dumps(one["details"])} for one in found]
    show_rows(rows, as_json)


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

    async def run(operator: Operator) -> dict[str, Any]:
        rebuilt = await operator.rebuild() if rebuild else []
        return {**await operator.reconcile(full=full), "rebuilt": rebuilt}

    found = on_books(config, run)
    typer.echo(json.dumps(found) if as_json else reconciliation_text(found))
    if not found["clean"]:
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
