"""Fits calibrations: `python -m compression.training.calibration --data ../shared/eval --out compression/weights`."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from compression.training.calibration.processes import observed
from compression.training.calibration.questions import cases

KINDS = ("lexical", "encoder")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m compression.training.calibration", description=__doc__)
    parser.add_argument(
        "--data", type=Path, default=Path("../shared/eval"), help="folder of the .jsonl.gz files"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("compression/weights"), help="folder for calibration.json"
    )
    parser.add_argument(
        "--kinds", default=",".join(KINDS), help="comma-separated; the others stay as they are"
    )
    parser.add_argument("--share", type=float, default=1.0, help="of the questions, from 0 to 1")
    parser.add_argument("--workers", type=int, default=2, help="processes that compress")
    parser.add_argument(
        "--report", type=Path, help="folder for reliability.png and the tables, as docs have them"
    )
    return parser.parse_args()


def main() -> None:
    options = arguments()
    if not options.data.is_dir():
        raise SystemExit(f"--data {options.data}: no such folder")
    from compression.tuning.artefact import entry_of, write
    from compression.tuning.measures import table

    started = time.perf_counter()
    path = options.out / "calibration.json"
    entries = json.loads(path.read_text())["kinds"] if path.is_file() else {}
    chosen = list(cases(options.data))
    chosen = chosen[:: round(1 / options.share)]
    bar = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    for kind in options.kinds.split(","):
        with Progress(*bar) as progress:
            found = observed(kind, chosen, options.workers, progress)
            fitted = entry_of(f"pith-{kind}", found, progress)
        entries[kind] = fitted.entry
        print(f"{kind}: {len(found)} questions, {time.perf_counter() - started:.0f} s\n{table(fitted)}")
    write(path, entries)
    print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
