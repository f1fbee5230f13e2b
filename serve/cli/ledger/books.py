"""`pith usage`, `statement`, `receipts`, `audit` and `reconcile`: commands that read the books."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from billing.books.saving import (
    COMPARED_BY,
    DIMENSIONS,
    LINES,
    MIN_CONVERSATIONS,
    PRESERVATION_LINES,
    PRESERVED_BY,
)
from billing.price import NANO_PER_USD, exact_usd
from billing.usage import now
from serve.cli.access import on_books, tell_of_archive
from serve.cli.options import AWorkspace, Config, Json, OfProject, OfWorkspace, Since, Until, period
from serve.cli.output import show_rows
from serve.config.paths import DEFAULT_CONFIG, ConfigError
from serve.operator.rows import Rows, as_json_lines, as_table
from serve.operator.rows import as_csv as csv_of

if TYPE_CHECKING:
    from serve.operator.operator import Operator

NOTHING = exact_usd(0)
TOO_FEW = f"too few to say: under {MIN_CONVERSATIONS} conversations on a side, or nearly all in a few of them"


def usage(
    by: Annotated[
        list[str] | None, typer.Option(help=f"{', '.join(DIMENSIONS)}; give several to combine them.")
    ] = None,
    savings: Annotated[
        bool,
        typer.Option(
            "--savings",
            help="What compression inside chat saved, measured: compressed conversations against held-out ones; by "
            "project and model, unless told otherwise.",
        ),
    ] = False,
    preservation: Annotated[
        bool,
        typer.Option(
            "--preservation",
            help="What compression changed in replies that were scored again under the whole prompt; by project, model "
            "and kind of block, unless told otherwise.",
        ),
    ] = False,
    workspace: OfWorkspace = None,
    since: Since = None,
    until: Until = None,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
) -> None:
    """Add up what was used and what it cost; by workspace, unless told otherwise."""
    if as_json and as_csv:
        raise ConfigError("--csv and --json cannot be used together")
    if savings and preservation:
        raise ConfigError("--savings and --preservation cannot be used together")
    which = dict(zip(("since", "until"), period(since, until), strict=True))
    report = Report("preservation" if preservation else "savings" if savings else "usage", by)
    rows = on_books(config, lambda operator: report.read(operator, workspace=workspace, **which))
    if as_json:
        typer.echo(json.dumps(rows))
    elif as_csv:
        typer.echo(csv_of([*report.groups, *report.numbers], rows), nl=False)
    else:
        typer.echo(report.table(rows) if rows else "none")


class Report:
    """One of the three that `pith usage` prints, by what was asked for."""

    def __init__(self, kind: Literal["usage", "savings", "preservation"], by: Sequence[str] | None) -> None:
        from serve.operator.books import COLUMNS, COMPARED, PRESERVED, SAVINGS, SUMS

        self.kind = kind
        lines: Sequence[str] = {
            "usage": ("workspace",),
            "savings": LINES,
            "preservation": PRESERVATION_LINES,
        }[kind]
        choices: Sequence[str] = {"usage": DIMENSIONS, "savings": COMPARED_BY, "preservation": PRESERVED_BY}[
            kind
        ]
        self.of = dimensions_of(by or lines, choices)
        self.groups = [column for name in self.of for column in COLUMNS[name]]
        self.numbers = {"usage": (*SUMS, *SAVINGS), "savings": COMPARED, "preservation": PRESERVED}[kind]

    async def read(self, operator: Operator, **which: Any) -> Rows:
        read = {
            "usage": operator.usage,
            "savings": operator.savings,
            "preservation": operator.preservation,
        }[self.kind]
        return await cast(Callable[..., Awaitable[Rows]], read)(self.of, **which)

    def table(self, rows: Rows) -> str:
        tables = {"usage": usage_table, "savings": compared_table, "preservation": preserved_table}
        return tables[self.kind](self.groups, rows)


def dimensions_of(by: Sequence[str], choices: Sequence[str]) -> list[str]:
    """Raises `ConfigError` for a name that is not among them, or given twice."""
    names = [name.strip() for item in by for name in item.split(",")]
    for name in names:
        if name not in choices:
            raise ConfigError(f"--by: {name!r} is not one of {', '.join(choices)}")
        if names.count(name) > 1:
            raise ConfigError(f"--by: {name} is given twice")
    return names


def usage_table(groups: Sequence[str], rows: Rows) -> str:
    """With a last line of totals, and columns of what was saved only where something was."""
    from serve.operator.books import SAVINGS, SUMS

    numbers = SUMS + (SAVINGS if any(map(_has_savings, rows)) else ())
    totals = {name: _total(rows, name) for name in numbers}
    last = {**dict.fromkeys(groups, ""), **totals, groups[0]: "total"}
    return as_table([*groups, *numbers], [*rows, last], numbers=numbers)


def _has_savings(row: Mapping[str, Any]) -> bool:
    return bool(row["tokens_saved"]) or (row["saved_usd"], row["compression_usd"]) != (NOTHING, NOTHING)


def _total(rows: Rows, name: str) -> str | int:
    """The sum of a column; of amounts as exact text."""
    if name.endswith("_usd"):
        return exact_usd(sum(int(Decimal(row[name]) * NANO_PER_USD) for row in rows))
    return sum(int(row[name]) for row in rows)


def compared_table(groups: Sequence[str], rows: Rows) -> str:
    """For people: the shares as one text."""
    from serve.operator.books import COMPARED

    counts = [name for name in COMPARED if name.endswith(("conversations", "requests"))]
    columns = [*groups, *counts, "measured_saving"]
    return as_table(
        columns, [{**row, "measured_saving": _measured_share(row)} for row in rows], numbers=counts
    )


def _measured_share(row: Mapping[str, Any]) -> str:
    share, low, high = (row[f"measured_{name}"] for name in ("saving", "low", "high"))
    return TOO_FEW if share is None else f"{share:.1%} ({low:.1%} to {high:.1%})"


PRESERVATION_COUNTS = ("checked_chats", "scored_tokens", "original_tokens", "sent_tokens", "clipped_chats")


def preserved_table(groups: Sequence[str], rows: Rows) -> str:
    """For people: each mean with its interval as one text."""
    told = [
        {
            **row,
            "nats_per_token": _ranged(row, "nats_per_token", "nats", "{:.3f}"),
            "agreement": _ranged(row, "agreement", "agreement", "{:.1%}"),
        }
        for row in rows
    ]
    columns = [*groups, *PRESERVATION_COUNTS, "nats_per_token", "agreement"]
    return as_table(columns, told, numbers=PRESERVATION_COUNTS)


def _ranged(row: Mapping[str, Any], mean: str, ends: str, form: str) -> str:
    said, low, high = (form.format(row[name]) for name in (mean, f"{ends}_low", f"{ends}_high"))
    return f"{said} ({low} to {high})"


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
