"""Time that `pith` takes where no server is asked, here and, in turn, in another checkout.

    python -m benchmarks.cli_start [--before CHECKOUT] [--rounds 11]

Each round runs every command once on each side, beginning with the other side each time. The figures are medians in
seconds, of wall time and of CPU.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parents[1]
START = "from serve.cli.main import main; main()"
# What a checkout does not have is left out of its side.
COMMANDS = (
    "--help",
    "--version",
    "serve --help",
    "usage --help",
    "compress --help",
    "config check configs/cpu.yaml",
    "models",
    "TAB after `pith us`",
    "TAB after `pith compress --model `",
)


@dataclass(frozen=True)
class Took:
    wall_s: float
    cpu_s: float


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", type=Path, help="Another checkout, measured in turn with this one.")
    parser.add_argument("--rounds", type=int, default=11)
    arguments = parser.parse_args()
    sides = [HERE] if arguments.before is None else [arguments.before.resolve(), HERE]
    samples: dict[tuple[str, Path], list[Took]] = defaultdict(list)
    for number in range(arguments.rounds + 1):
        for command in COMMANDS:
            for side in sides if number % 2 else sides[::-1]:
                found = run(command, side)
                # The first round reads the files from disk.
                if found is not None and number:
                    samples[command, side].append(found)
    print(report(samples, sides))


def run(command: str, checkout: Path) -> Took | None:
    """One run from its start to its end; none where the checkout has no such command."""
    line = command.partition("`")[2].rstrip("`")
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    if line:
        environment |= {
            "_PITH_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(line.count(" ")),
        }
    arguments = [sys.executable, "-c", START, *([] if line else command.split())]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(arguments, cwd=checkout, env=environment, capture_output=True, text=True)
    wall_s, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode or (line and "Usage" in done.stdout):
        return None
    return Took(wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def report(samples: dict[tuple[str, Path], list[Took]], sides: Sequence[Path]) -> str:
    """A row of Markdown for each command; a dash where a side does not have it."""
    rows = ["| `pith …` |" + " before, s | CPU |" * (len(sides) - 1) + " s | CPU |"]
    rows.append("|---|" + "---:|---:|" * len(sides))
    for command in COMMANDS:
        cells = [_cells(samples.get((command, side), [])) for side in sides]
        name = command if "`" in command else f"`{command}`"
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _cells(found: Sequence[Took]) -> str:
    if not found:
        return "- | -"
    return (
        f"{statistics.median(one.wall_s for one in found):.2f} | "
        f"{statistics.median(one.cpu_s for one in found):.2f}"
    )


if __name__ == "__main__":
    main()
