"""`pith usage`: what was used, what compression saved, and what it changed in replies, as tables, CSV or JSON."""

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
from serve.cli.access import on_books
from serve.cli.options import Config, Json, OfProject, OfWorkspace, Since, Until, period
from serve.config.paths import DEFAULT_CONFIG, ConfigError
from serve.operator.rows import Rows, as_table
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
    project: OfProject = None,
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
    if project is not None and (savings or preservation):
        raise ConfigError("--project goes with usage alone")
    which: dict[str, Any] = dict(zip(("since", "until"), period(since, until), strict=True))
    which |= {"workspace": workspace} if project is None else {"workspace": workspace, "project": project}
    report = Report("preservation" if preservation else "savings" if savings else "usage", by)
    rows = on_books(config, lambda operator: report.read(operator, **which))
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
