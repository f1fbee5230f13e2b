"""`python -m tests.two_versions`: the release before and this one at once."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Annotated, get_args

import typer
from rich.console import Console
from rich.markup import escape

from tests.faults.audit import Tally
from tests.faults.world import LedgerKind
from tests.simulation.campaign import Findings, run_many
from tests.two_versions import wire
from tests.two_versions.before import BEFORE, LEDGER_BEFORE, ROOT, NoSuchCommit, code_of, cross, revision
from tests.two_versions.ledger import MachinesBefore, run_both
from tests.two_versions.simulated import parts_of_both

console = Console(soft_wrap=True)


def main(
    before: Annotated[str, typer.Option(help="A commit: what crosses between processes.")] = BEFORE,
    ledger_before: Annotated[
        str, typer.Option(help="A commit of the same revision of the ledger: all else.")
    ] = LEDGER_BEFORE,
    runs: Annotated[
        int, typer.Option(min=0, help="Of servers on a ledger, half of them on each database.")
    ] = 4,
    rounds: Annotated[
        int, typer.Option(min=1, help="In each run: from all of one version to all of it again.")
    ] = 2,
    schedules: Annotated[int, typer.Option(min=0, help="Of the simulation.")] = 1000,
    serving: Annotated[bool, typer.Option(help="A `pith serve` whose code changes, with Ray.")] = False,
    seed: Annotated[int, typer.Option(help="The first one.")] = 1,
    workers: Annotated[int, typer.Option(min=1, help="Processes of the simulation.")] = os.cpu_count() or 1,
) -> None:
    """Run both, and count what went wrong."""
    try:
        with code_of(before) as code:
            wrong = _cross(code)
        with code_of(ledger_before) as code:
            if revision(code) == revision(ROOT):
                wrong += _ledgers(code, runs, rounds, seed) if runs else 0
                wrong += _simulate(code, schedules, seed, workers) if schedules else 0
                wrong += _serve(code) if serving else 0
            else:
                console.print(
                    f"[yellow]The ledger is at revision {revision(code)} there and {revision(ROOT)} here: two versions "
                    "on one ledger are promised where it stays, so none was run"
                )
    except NoSuchCommit as error:
        console.print(f"[red]{error}")
        raise typer.Exit(2) from error
    raise typer.Exit(1 if wrong else 0)


def _cross(code: Path) -> int:
    wrong = 0
    for name, writer, reader in (("before to this", code, ROOT), ("this to before", ROOT, code)):
        written, read = cross(writer, reader)
        troubles = wire.troubles(written, read)
        counts = ", ".join(f"{len(samples)} {way}" for way, samples in written.items())
        console.print(f"{name}: {counts} cross, {len(troubles)} wrongly")
        wrong += _shown(troubles)
    return wrong


def _ledgers(code: Path, runs: int, rounds: int, seed: int) -> int:
    total, began, machines = Tally(), time.monotonic(), MachinesBefore(code=code)
    figures: Counter[str] = Counter()
    try:
        for number in range(seed, seed + runs):
            kind: LedgerKind = get_args(LedgerKind)[number % 2]
            found = asyncio.run(run_both(code, kind, number, rounds=rounds, machines=machines))
            total.add(found.tally)
            figures.update(replaced=found.replaced, killed=found.killed)
            figures.update(dict(zip(("by the version before", "by this one"), found.carried, strict=True)))
            ended = found.ended if found.tally.violations else ""
            console.print(escape(f"{kind}, seed {number} {ended}"))
    finally:
        machines.close()
    console.print(
        f"{runs} runs in {time.monotonic() - began:.0f} s: {figures['replaced']} servers replaced, {figures['killed']} "
        f"of them killed; {total.requests:,} requests, {figures['by the version before']:,} chats by the version "
        f"before, {figures['by this one']:,} by this one; {total.found:,} of {total.expected:,} events, "
        f"{total.leaves:,} leaves; {total.lost + total.leaves_lost} lost, "
        f"{total.doubled + total.leaves_doubled} doubled"
    )
    return _shown(total.violations)


def _simulate(code: Path, schedules: int, seed: int, workers: int) -> int:
    findings, began = Findings(), time.monotonic()
    for part in run_many(seed, schedules, workers=workers, parts=partial(parts_of_both, code)):
        findings.join(part)
    console.print(
        f"{findings.schedules:,} schedules in {time.monotonic() - began:.0f} s: {findings.steps:,} steps, "
        f"{findings.transactions:,} transactions, {len(findings.failed)} with violations"
    )
    return _shown([f"seed {each.seed}: {'; '.join(each.violations)}" for each in findings.failed])


def _serve(code: Path) -> int:
    from tests.two_versions.serving import serve_both

    with tempfile.TemporaryDirectory(prefix="pith-two-versions-") as folder:
        found = serve_both(code, ROOT, Path(folder))
    console.print(
        f"{len(found.changes)} changes of one `pith serve` ({'; '.join(found.changes)}): {dict(found.statuses)}, "
        f"{found.died} with the replica that was killed, {len(found.wrong)} wrong"
    )
    return _shown(found.wrong)


def _shown(wrong: list[str]) -> int:
    for line in wrong[:20]:
        console.print(f"[red]{escape(line)}")
    return len(wrong)


if __name__ == "__main__":
    typer.run(main)
