"""`python -m tests.single_faults`: every step of a request's path fails once, in every way."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from benchmarks.ledger.postgres_server import memory_folder
from tests.single_faults.campaign import KINDS, Tried, sweep
from tests.single_faults.paths import PATHS
from tests.single_faults.seam import build

console = Console(soft_wrap=True)
PRELOADED = "LD_PRELOAD"


def main(
    path: Annotated[
        list[str] | None, typer.Option(help="One of the paths; all of them unless given.")
    ] = None,
    how: Annotated[list[str] | None, typer.Option(help="error, timeout, death; all unless given.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Only steps with this in their label.")] = None,
    every: Annotated[int, typer.Option(min=1, help="Try only every so many of the faults.")] = 1,
    steps: Annotated[bool, typer.Option(help="Print every step.")] = True,
) -> None:
    """Counts the steps of a path in a run that goes well, and prints them; then each of them fails in each way."""
    with tempfile.TemporaryDirectory(prefix="pith-single-faults-", dir=memory_folder()) as name:
        place = Path(name).resolve()
        if PRELOADED not in os.environ:
            # A process that has it from its start.
            environment = {**os.environ, PRELOADED: str(build(place)), "OMP_NUM_THREADS": "1"}
            command = [sys.executable, "-m", "tests.single_faults", *sys.argv[1:]]
            raise typer.Exit(os.spawnve(os.P_WAIT, sys.executable, command, environment))
        raise typer.Exit(_run(place, path or list(PATHS), tuple(how or KINDS), only or [""], every, steps))


def _run(
    place: Path, paths: list[str], kinds: tuple[str, ...], only: list[str], every: int, prints: bool
) -> int:
    tried = violations = 0
    for number, name in enumerate(paths):
        of_path = wrong = 0
        for found in sweep(place / str(number), name, kinds, only=only, every=every):
            if not isinstance(found, Tried):
                count = len(found)
                for k, step in enumerate(found if prints else [], 1):
                    console.print(f"{name} {k:>4}  {escape(str(step))}")
                continue
            of_path += 1
            wrong += bool(found.result.violations)
            for violation in found.result.violations:
                console.print(f"[red]{name}: {escape(str(found.step))} {found.way.name}: {escape(violation)}")
        console.print(f"{name}: {count} steps, {of_path} faults, {wrong} with violations")
        tried, violations = tried + of_path, violations + wrong
    console.print(f"{tried} faults, {violations} with violations")
    return 1 if violations else 0


if __name__ == "__main__":
    typer.run(main)
