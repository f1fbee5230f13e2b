"""Cost of hostile input, by size: seconds at n, 2n and 4n, where 4n is the largest that is taken.

    python -m benchmarks.limits [--only PATTERN] [--scale 0.1] [--deadline 120] [--json FILE]

Each row runs in a process of its own, alone; `--scale` takes smaller inputs. A row that is over the deadline is ended.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from benchmarks.limits.measuring import measure
from benchmarks.limits.report import HEAD, line
from benchmarks.limits.row import Measured
from benchmarks.limits.rows import ROWS, find


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="PATTERN", help="rows whose name has it")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the bounds to go up to")
    parser.add_argument("--deadline", type=float, default=120.0, metavar="S", help="for one size of one row")
    parser.add_argument("--list", action="store_true", help="names of the rows alone")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the figures, for a program")
    options = parser.parse_args()
    rows = [row for row in ROWS if re.search(options.only, row.name)]
    if not rows:
        sys.exit(f"--only {options.only}: no row has it; see --list")
    if options.list:
        print("\n".join(row.name for row in rows))
        return
    print(HEAD, flush=True)
    found: list[Measured] = []
    progress = Console(stderr=True)
    for row in rows:
        with progress.status(row.name):
            found.append(measure(row, find, scale=options.scale, deadline_s=options.deadline))
        print(line(found[-1]), flush=True)
    if options.json:
        figures = [
            {"name": one.row.name, "costs": [asdict(c) for c in one.costs], "ended": one.ended}
            for one in found
        ]
        options.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
