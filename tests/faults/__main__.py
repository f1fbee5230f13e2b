"""`python -m tests.faults`: the fault harness, run after run, with a table at the end."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.faults.audit import Tally
from tests.faults.faults import FAULTS
from tests.faults.postgres import MissingProgram
from tests.faults.real import FAULTS as REAL_FAULTS
from tests.faults.real import run_all_real
from tests.faults.run import Case, cases, run_case
from tests.faults.table import as_markdown, as_table
from tests.faults.world import Machines

console = Console()


def main(
    runs: Annotated[int, typer.Option(min=1, help="How many; each fault and mode in turn.")] = 240,
    seed: Annotated[int, typer.Option(help="The first seed: the same one draws the same faults.")] = 1,
    only: Annotated[str, typer.Option(help="Only faults whose name contains this.")] = "",
    real: Annotated[bool, typer.Option(help="A few runs against `pith serve`, with vLLM and Ray.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for the table and the log.")] = Path("var/faults"),
) -> None:
    """Break the running service in every way, and see that no usage event is lost or doubled."""
    named = sum(only in fault.name for fault in (REAL_FAULTS if real else FAULTS))
    if not named:
        raise typer.BadParameter(f"no fault has {only!r} in its name", param_hint="--only")
    selected = [case for case in cases(runs * len(FAULTS) // named, seed) if only in case.fault.name]
    out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    log = out / "log.txt"
    try:
        tallies = asyncio.run(_run_real(seed, only, log) if real else _run_all(selected, log))
    except MissingProgram as error:
        console.print(f"[red]{error}")
        raise typer.Exit(2) from error
    took_s = time.monotonic() - began
    console.print(as_table(tallies, took_s))
    (out / "table.md").write_text(as_markdown(tallies, took_s))
    console.print(f"Written to {out}/table.md; each run's line is in {out}/log.txt.")
    violations = [violation for tally in tallies.values() for violation in tally.violations]
    for violation in violations[:20]:
        console.print(f"[red]{violation}")
    if violations:
        raise typer.Exit(1)


async def _run_all(selected: list[Case], log_path: Path) -> dict[tuple[str, str], Tally]:
    tallies: dict[tuple[str, str], Tally] = defaultdict(Tally)
    machines = Machines()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    try:
        with log_path.open("w") as log, Progress(*columns, console=console) as progress:
            task = progress.add_task("starting", total=len(selected))
            for case in selected:
                progress.update(task, description=f"{case.fault.name}, {case.mode}")
                began = time.monotonic()
                tally, ended = await run_case(case, machines)
                tallies[case.fault.name, case.mode].add(tally)
                took_s = time.monotonic() - began
                figures = json.dumps(vars(tally))
                print(f"{case.name}: {took_s:.2f} s, {ended}\n  {figures}", file=log, flush=True)
                progress.advance(task)
    finally:
        machines.close()
    return dict(tallies)


async def _run_real(seed: int, only: str, log_path: Path) -> dict[tuple[str, str], Tally]:
    tallies: dict[tuple[str, str], Tally] = {}
    with log_path.open("w") as log, console.status("starting `pith serve`") as status:

        def report(name: str, mode: str, tally: Tally, ended: str) -> None:
            tallies[name, mode] = tally
            status.update(f"done: {name}, {mode}")
            print(f"{name}, {mode}, seed {seed}: {ended}\n  {json.dumps(vars(tally))}", file=log, flush=True)

        await run_all_real(seed, only, report)
    return tallies


if __name__ == "__main__":
    if not sys.platform.startswith("linux"):
        sys.exit("the fault harness needs Linux")
    typer.run(main)
