"""`pith statement`, `receipts`, `audit` and `reconcile`: commands that read the books."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from billing.price import exact_usd
from billing.usage import now
from serve.cli.access import on_books, tell_of_archive
from serve.cli.ledger.export import whole_file
from serve.cli.ledger.usage import NOTHING, compared_table, preserved_table
from serve.cli.options import AWorkspace, Config, Json, OfProject, OfWorkspace, Since, Until, period
from serve.cli.output import show_rows
from serve.config.paths import DEFAULT_CONFIG, ConfigError
from serve.operator.rows import Rows, as_json_lines, as_table

if TYPE_CHECKING:
    from serve.operator.operator import Operator

STATED = ("project", "model", "requests", "prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd")
GROUPS = 2
PRESERVED_TITLE = (
    "Replies scored again under the whole prompt: nats a token and places with the same likeliest token (95% intervals "
    "that hold at every look)"
)
PRESERVED_NOTE = (
    "  Of a sample, up to 512 tokens of each reply. An answer that is right in other words counts as changed, and",
    "  harm in later turns is not seen.",
)
ADJUSTMENTS = ("id", "at", "kind", "usd", "event_id", "reason")
ARCHIVED = (
    "The events of this month are archived: what compression saved cannot be measured here any more.",
    "",
)
COLLECTIONS = ("id", "cut_at", "usd", "state", "reference", "closed_at")


def statement(
    workspace: AWorkspace,
    month: Annotated[str, typer.Argument(help="Calendar month in UTC, such as 2026-11.")],
    proof: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the month's proof there: pith verify checks it."),
    ] = None,
    from_size: Annotated[
        int | None,
        typer.Option(min=1, help="With --proof: also that the log with so many leaves was its beginning."),
    ] = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """Print what a workspace owed, used, was asked for and paid in a month."""
    from billing.store.dates import month_bounds

    try:
        since, _ = month_bounds(month)
    except ValueError as error:
        raise ConfigError(f"MONTH: {error}") from error
    if since > now():
        raise ConfigError(f"MONTH: {month} has not begun")
    fields = on_books(config, lambda operator: operator.statement(workspace, month))
    typer.echo(json.dumps(fields) if as_json else statement_text(fields))
    if proof is not None:
        on_books(config, lambda operator: _write_proof(operator, workspace, month, proof, from_size))


async def _write_proof(
    operator: Operator, workspace: str, month: str, file: Path, from_size: int | None
) -> None:
    found = await operator.statement_proof(workspace, month, from_size)
    with whole_file(file, "--proof") as out:
        for piece in found.pieces(operator.log_signer):
            out.write(piece.encode())
    typer.echo(f"{file}: the proof of {len(found.leaves)} leaves, {len(found.pending)} pending", err=True)
    if found.missing:
        typer.echo(f"{found.missing} rows are not what was logged: the file names them", err=True)


def statement_text(fields: dict[str, Any]) -> str:
    asked = "" if fields["month_has_ended"] else f", so far: the month has not ended at {fields['asked_at']}"
    # What was saved is shown only where something was.
    from serve.operator.books import SAVINGS

    has_savings = any(row["tokens_saved"] or row["compression_usd"] != NOTHING for row in fields["usage"])
    columns = STATED + (SAVINGS if has_savings else ())
    parts = [
        f"Statement of {fields['workspace']} ({fields['workspace_id']}) for {fields['month']} (UTC){asked}",
        "",
        f"Opening balance  {_owed(fields['opening'])}",
        "",
        *_section("Usage", columns, fields["usage"], columns[GROUPS:]),
        f"Used             {fields['used_usd']} USD{_written_off(fields)}",
        *([f"Saved            {_saved(fields)}"] if columns != STATED else []),
        "",
        *_labelled("person", fields["by_person"]),
        *_labelled("tag", fields["by_tag"]),
        *_measured(fields["measured_savings"]),
        *_preserved(fields["preservation"]),
        *(ARCHIVED if fields["events_archived"] else []),
        *_adjusted(fields),
        *_section("Collections cut", COLLECTIONS, fields["collections_cut"], ("usd",)),
        *_section("Collections paid or voided", COLLECTIONS, fields["collections_closed"], ("usd",)),
        f"Paid             {fields['paid_usd']} USD",
        f"Closing balance  {_owed(fields['closing'])}",
    ]
    return "\n".join(parts)


def _adjusted(fields: dict[str, Any]) -> list[str]:
    if not fields["adjustments"]:
        return []
    return [
        *_section("Credits, adjustments and refunds", ADJUSTMENTS, fields["adjustments"], ("usd",))[:-1],
        f"Adjusted         {fields['adjusted_usd']} USD",
        "",
    ]


def _labelled(kind: str, rows: Rows) -> list[str]:
    columns = [kind if name == "model" else name for name in STATED]
    return (
        _section(f"Usage by {kind}, the most expensive first", columns, rows, columns[GROUPS:])
        if rows
        else []
    )


def _measured(rows: Rows) -> list[str]:
    if not rows:
        return []
    lines = compared_table(STATED[:GROUPS], rows).splitlines()
    return [
        "Measured saving of compression, against conversations that were held out (95% interval)",
        *(f"  {line}" for line in lines),
        "",
    ]


def _preserved(rows: Rows) -> list[str]:
    if not rows:
        return []
    lines = preserved_table([*STATED[:GROUPS], "kind"], rows).splitlines()
    return [PRESERVED_TITLE, *(f"  {line}" for line in lines), *PRESERVED_NOTE, ""]


def _saved(fields: dict[str, Any]) -> str:
    gross, spent, net = (fields[f"{name}_usd"] for name in ("saved", "compression", "net_saved"))
    tokens = fields["tokens_saved"]
    return f"{gross} USD by compressing prompts ({tokens} tokens); {spent} USD of compression leave {net} USD"


def _written_off(fields: dict[str, Any]) -> str:
    amount = fields["written_off_usd"]
    return "" if amount == NOTHING else f" ({amount} USD beyond it are written off: the limits had no room)"


def _section(title: str, columns: Sequence[str], rows: Rows, numbers: Sequence[str]) -> list[str]:
    body = as_table(columns, rows, numbers=numbers) if rows else "none"
    return [title, *(f"  {line}" for line in body.splitlines()), ""]


def _owed(balance: dict[str, str]) -> str:
    return (
        f"{balance['owed_usd']} USD owed "
        f"({balance['in_collections_usd']} in collections, {balance['uncollected_usd']} uncollected)"
    )


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
    begin, end = period(since, until)

    async def read(operator: Operator) -> Rows:
        await tell_of_archive(operator, "receipts", begin)
        return await operator.receipts(
            workspace=workspace, project=project, id=id, since=begin, until=end, limit=limit
        )

    typer.echo(as_json_lines(on_books(config, read)), nl=False)


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
        *(f"difference: the transparency log: {problem}" for problem in fields["wrong_log"]),
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
