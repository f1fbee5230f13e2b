"""`python -m tests.power_loss`: a run on SQLite or PostgreSQL whose machine loses its power, again and again."""

from __future__ import annotations

import time
from collections import Counter
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.markup import escape

from tests.power_loss.campaign import Findings, on_postgres, on_sqlite

console = Console(soft_wrap=True)


def main(
    crashes: Annotated[int, typer.Option(min=1, help="How often the power goes.")] = 1000,
    seed: Annotated[int, typer.Option(help="Draws the load, and what each cut leaves.")] = 1,
    database: Annotated[
        Literal["sqlite", "postgresql"], typer.Option(help="What the ledger is on.")
    ] = "sqlite",
    requests: Annotated[int, typer.Option(min=1, help="Of the run that is recorded.")] = 400,
) -> None:
    """Lose what was not synced, at any moment of a run, and look for what callers were told."""
    began, findings = time.monotonic(), Findings()
    run = on_sqlite if database == "sqlite" else on_postgres
    for findings in run(seed=seed, crashes=crashes, requests=requests):
        if findings.crashes[-1].verdict.violations:
            _show(findings)
    _tell(findings, time.monotonic() - began)
    if findings.failed:
        raise typer.Exit(1)


def _show(findings: Findings) -> None:
    crash = findings.crashes[-1]
    for violation in crash.verdict.violations[:5]:
        console.print(f"after record {crash.position}, {crash.cut}: {escape(violation[:400])}")


def _tell(findings: Findings, took_s: float) -> None:
    lost = sum(len(crash.verdict.lost) for crash in findings.crashes)
    doubled = sum(len(crash.verdict.doubled) for crash in findings.crashes)
    wrong = sum(len(crash.verdict.wrong) for crash in findings.crashes)
    by_cut = Counter(crash.cut for crash in findings.crashes)
    console.print(
        f"{len(findings.crashes):,} crashes in a run of {findings.records:,} changes in {took_s:.0f} s: "
        f"{findings.promises:,} promises looked for, {lost} lost, {doubled} doubled, {wrong} otherwise wrong"
    )
    for cut, number in by_cut.most_common():
        console.print(f"  {number:>6,} left of what was not synced: {cut}")


if __name__ == "__main__":
    typer.run(main)
