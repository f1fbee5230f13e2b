"""`python -m tests.mutants`: does each wrong change of the code that moves money make a test fail?"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tests.mutants.mutant import MUTANTS, ROOT, Mutant
from tests.mutants.pairs import PAIR_MUTANTS

LONGEST_S = 900.0
COPIED = ("billing", "serve", "models", "compression", "benchmarks", "configs", "tests", "pyproject.toml")
TESTS_FAILED = 1
console = Console(soft_wrap=True)


@dataclass(frozen=True)
class Verdict:
    """`killed_by` is the first test that failed; None where the mutant lives."""

    mutant: Mutant
    killed_by: str | None
    took_s: float
    trouble: str = ""


def main(
    only: Annotated[str, typer.Option(help="Only mutants whose name contains this.")] = "",
    at_once: Annotated[int, typer.Option(min=1, help="How many at a time.")] = os.cpu_count() or 1,
    out: Annotated[Path, typer.Option(help="Where the table goes.")] = Path("var/mutants.md"),
) -> None:
    """Change the code, one change at a time in a copy of it, and run the tests that are named for the change."""
    selected = [mutant for mutant in (*MUTANTS, *PAIR_MUTANTS) if only in mutant.name]
    _require_green(selected)
    with ThreadPoolExecutor(at_once) as threads:
        verdicts = []
        for verdict in threads.map(judge, selected):
            console.print(_line(verdict))
            verdicts.append(verdict)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(_table(verdicts))
    living = [verdict for verdict in verdicts if verdict.killed_by is None]
    console.print(f"{len(verdicts) - len(living)} of {len(verdicts)} killed; written to {out}")
    if living:
        raise typer.Exit(1)


def _require_green(selected: Sequence[Mutant]) -> None:
    """Tests that fail without a mutant kill none."""
    tests = tuple(sorted({test for mutant in selected for test in mutant.tests}))
    done = _run_tests(ROOT, tests)
    if done.returncode != 0:
        console.print(done.stdout[-3000:], markup=False)
        raise typer.Exit(2)
    console.print(f"{len(tests)} tests pass without a mutant")


def judge(mutant: Mutant) -> Verdict:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pith-mutant-") as folder:
        root = Path(folder)
        _copy(root)
        changed = mutant.mutated(root)
        (root / mutant.path).write_text(changed)
        done = _run_tests(root, mutant.tests)
    took_s = time.monotonic() - began
    if done.returncode == TESTS_FAILED:
        return Verdict(mutant, _first_failure(done.stdout), took_s)
    trouble = "" if done.returncode == 0 else f"pytest ended with {done.returncode}: {done.stdout[-500:]}"
    return Verdict(mutant, None, took_s, trouble)


def _copy(root: Path) -> None:
    """What tests need of this checkout, as it lies here. The environment stays where it is."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, root / name)


def _run_tests(root: Path, tests: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    return subprocess.run(
        command,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )


def _first_failure(printed: str) -> str:
    for line in printed.splitlines():
        if line.startswith(("FAILED ", "ERROR ")):
            name = line.split(" ", 1)[1].split(" - ")[0]
            return name.rpartition("::")[2] or name
    return "a test"


def _line(verdict: Verdict) -> str:
    what = f"[green]killed[/] by {verdict.killed_by}" if verdict.killed_by else "[red]survived[/]"
    return f"{verdict.mutant.name}: {what} ({verdict.took_s:.0f} s) {verdict.trouble}".replace(
        "[sqlite", "\\[sqlite"
    )


def _table(verdicts: list[Verdict]) -> str:
    rows = [f"| {verdict.mutant.name} | `{verdict.mutant.path}` | {_end(verdict)} |" for verdict in verdicts]
    return "\n".join(["| mutant | file | |", "|---|---|---|", *rows]) + "\n"


def _end(verdict: Verdict) -> str:
    return f"killed by `{verdict.killed_by}`" if verdict.killed_by else "**survived**"


if __name__ == "__main__":
    typer.run(main)
