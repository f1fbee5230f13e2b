"""The harness's result as a table: on the screen, and as Markdown for the documentation."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table

from tests.faults.audit import Tally

COLUMNS = (
    "runs",
    "requests",
    "completed",
    "compressions",
    "pairs",
    "cached",
    "whole",
    "degraded",
    "expected",
    "found",
    "lost",
    "doubled",
    "also billed",
    "written off",
    "collections",
    "looks",
    "leaves",
    "leaves lost",
    "leaves doubled",
    "violations",
)
Tallies = Mapping[tuple[str, str], Tally]


def _figures(tally: Tally) -> list[str]:
    counts = [vars(tally)[name.replace(" ", "_")] for name in COLUMNS]
    return [f"{len(value) if isinstance(value, list) else value:,}" for value in counts]


def _total(tallies: Tallies) -> Tally:
    total = Tally()
    for tally in tallies.values():
        total.add(tally)
    return total


def as_table(tallies: Tallies, took_s: float) -> Table:
    table = Table(title=f"Faults tried ({took_s:.0f} s)")
    table.add_column("fault")
    table.add_column("reply")
    for name in COLUMNS:
        table.add_column(name, justify="right")
    for (fault, mode), tally in sorted(tallies.items()):
        table.add_row(fault, mode, *_figures(tally))
    table.add_section()
    table.add_row("all", "", *_figures(_total(tallies)))
    return table


def as_markdown(tallies: Tallies, took_s: float) -> str:
    lines = [
        f"| fault | reply | {' | '.join(COLUMNS)} |",
        f"|---|---|{'---:|' * len(COLUMNS)}",
        *(
            f"| {fault} | {mode} | {' | '.join(_figures(tally))} |"
            for (fault, mode), tally in sorted(tallies.items())
        ),
        f"| **all** | | {' | '.join(_figures(_total(tallies)))} |",
        "",
        f"{took_s:.0f} s.",
    ]
    return "\n".join(lines) + "\n"
