"""Fits calibrations: `python -m compression.training.calibration --data ../shared/eval --out compression/weights`."""

from __future__ import annotations

import argparse
import json
import time
from functools import partial
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from benchmarks.quality import in_process
from compression.training.calibration.questions import cases, question_of
from compression.training.calibration.remembering import remembered_scoring
from compression.tuning.artefact import entry_of, write
from compression.tuning.crew import observe_all
from compression.tuning.measures import table

SHARES = {"lexical": 1.0, "encoder": 0.15}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m compression.training.calibration", description=__doc__)
    parser.add_argument(
        "--data", type=Path, default=Path("../shared/eval"), help="folder of the .jsonl.gz files"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("compression/weights"), help="folder for calibration.json"
    )
    parser.add_argument(
        "--kinds", default=",".join(SHARES), help="comma-separated; the others stay as they are"
    )
    parser.add_argument(
        "--share", type=float, help="of the questions; default: all, and of the slow encoder 0.15"
    )
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path("var/calibration"),
        help="folder where the encoder's scores are remembered",
    )
    parser.add_argument("--workers", type=int, default=2, help="processes that compress")
    parser.add_argument(
        "--report", type=Path, help="folder for reliability.png and the tables, as docs have them"
    )
    return parser.parse_args()


def main() -> None:
    options = arguments()
    if not options.data.is_dir():
        raise SystemExit(f"--data {options.data}: no such folder")
    started = time.perf_counter()
    path = options.out / "calibration.json"
    entries = json.loads(path.read_text())["kinds"] if path.is_file() else {}
    every = list(cases(options.data))
    bar = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    for kind in options.kinds.split(","):
        with Progress(*bar) as progress:
            chosen = every[:: round(1 / (options.share or SHARES[kind]))]
            scoring_of = partial(remembered_scoring, folder=options.cache) if kind == "encoder" else None
            task, found = progress.add_task(f"{kind}: compressing", total=len(chosen)), []
            for one in observe_all(
                in_process.spec_of(kind), chosen, question_of, options.workers, scoring_of
            ):
                found.append(one)
                progress.advance(task)
            fitted = entry_of(f"pith-{kind}", found, progress)
        entries[kind] = fitted.entry
        print(f"{kind}: {len(found)} questions, {time.perf_counter() - started:.0f} s\n{table(fitted)}")
    write(path, entries)
    print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
