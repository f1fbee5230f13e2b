"""`python -m tests.simulation`: schedules of the simulated ledger, or one of them again with its trace."""

from __future__ import annotations

import os
import time
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.simulation.campaign import CHUNK, Findings, run_many, stage
from tests.simulation.plan import draw
from tests.simulation.schedule import run_seed

console = Console(soft_wrap=True)


def main(
    schedules: Annotated[int, typer.Option(min=1, help="How many, each from a seed of its own.")] = 10_000,
    seed: Annotated[int, typer.Option(help="The first seed, or the only one with --trace.")] = 1,
    trace: Annotated[bool, typer.Option(help="Run one seed, and print all that happened in it.")] = False,
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = os.cpu_count() or 1,
) -> None:
    """Hold, settle, spool, replay, sweep, renew, collect and crash, with a fault at any await."""
    if trace:
        _show(seed)
        return
    findings, took_s = _run(seed, schedules, workers)
    console.print(
        f"{findings.schedules:,} schedules in {took_s:.0f} s on {workers} processes: {findings.steps:,} steps, "
        f"{findings.transactions:,} transactions, {len(findings.failed)} schedules with violations"
    )
    for outcome, count in findings.outcomes.most_common():
        console.print(f"  {count:>9,} requests: {outcome}")
    for result in findings.failed[:20]:
        console.print(f"[red]seed {result.seed}: {escape('; '.join(result.violations))}")
    if findings.failed:
        console.print(f"Again, with all that happened: --seed {findings.failed[0].seed} --trace")
        raise typer.Exit(1)


def _run(seed: int, schedules: int, workers: int) -> tuple[Findings, float]:
    findings, began = Findings(), time.monotonic()
    columns = (TextColumn("schedules"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=schedules)
        for part in run_many(seed, schedules, workers=min(workers, -(-schedules // CHUNK))):
            findings.join(part)
            progress.update(task, completed=findings.schedules)
    return findings, time.monotonic() - began


def _show(seed: int) -> None:
    plan = draw(seed)
    console.print(f"began at {plan.began_at}, calm from {plan.calm_from_s:.3f} s")
    for item in (*plan.workspaces, *plan.servers, *plan.requests):
        console.print(escape(str(item)))
    result = run_seed(seed, stage(), traced=True)
    for line in result.trace:
        console.print(escape(line))
    for violation in result.violations:
        console.print(f"[red]{escape(violation)}")
    if result.violations:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
