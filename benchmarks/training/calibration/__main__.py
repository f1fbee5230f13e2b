"""Fits calibrations: `python -m benchmarks.training.calibration --data ../shared/eval --out compression/weights`."""

import argparse
import json
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from benchmarks.evaluation.minilm import encoder_checkpoint
from benchmarks.training.calibration.measures import table
from benchmarks.training.calibration.questions import cases, question_of
from benchmarks.training.calibration.remembered_scores import remembered_scoring
from benchmarks.training.calibration.report import publish
from benchmarks.training.calibration.results import result_questions
from compression.pipeline.pipeline import OF_RECORDS
from compression.pipeline.spec import ModelSpec
from compression.tuning.artefact import Fitted, entry_of, write
from compression.tuning.observing import Observed, observe_all

TOKENIZER = "models/embedded/tokenizer"
COMMAND = "python -m benchmarks.training.calibration"
# Of the questions: an encoder takes long.
SHARES = {"lexical": 1.0, "encoder": 0.1, f"lexical{OF_RECORDS}": 1.0}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/eval"), help="folder of .jsonl.gz files")
    parser.add_argument(
        "--out", type=Path, default=Path("compression/weights"), help="folder for calibration.json"
    )
    parser.add_argument(
        "--kinds", default=",".join(SHARES), help="comma-separated; the others stay as they are"
    )
    parser.add_argument(
        "--share", type=float, help="of the questions; default: all, and of the encoder's 0.1"
    )
    parser.add_argument("--workers", type=int, default=2, help="processes that compress")
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path("var/calibration"),
        help="folder for encoders' scores and the report's figures",
    )
    parser.add_argument(
        "--report", type=Path, help="folder, such as docs, for calibration.md; its figures go to --cache"
    )
    return parser.parse_args()


def spec_of(kind: str) -> ModelSpec:
    """The model of a kind of `SHARES` with its default settings. Raises `NoEncoder`."""
    if kind == "encoder":
        return ModelSpec("encoder", "encoder", TOKENIZER, "pith-mini", str(encoder_checkpoint()), threads=1)
    return ModelSpec("lexical", "lexical", TOKENIZER, "pith-mini")


def observed(kind: str, options: argparse.Namespace, bars: Progress) -> list[Observed]:
    """Every so many-th question, compressed at all ratios, in order."""
    every: Sequence[Any] = list((result_questions if kind.endswith(OF_RECORDS) else cases)(options.data))
    chosen = every[:: max(1, round(1 / (options.share or SHARES[kind])))]
    scoring_of = partial(remembered_scoring, folder=options.cache) if kind == "encoder" else None
    task, found = bars.add_task(f"{kind}: compressing", total=len(chosen)), []
    for one in observe_all(spec_of(kind), chosen, question_of, options.workers, scoring_of):
        found.append(one)
        bars.advance(task)
    return found


def main() -> None:
    options = arguments()
    if not options.data.is_dir():
        raise SystemExit(f"--data {options.data}: no such folder")
    started, path = time.perf_counter(), options.out / "calibration.json"
    entries = json.loads(path.read_text())["kinds"] if path.is_file() else {}
    fits = dict[str, Fitted]()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    for kind in options.kinds.split(","):
        with Progress(*columns) as bars:
            found = observed(kind, options, bars)
            fits[kind] = entry_of(
                f"pith-{kind.replace(' ', '-')}", found, bars, leave_families_out=bool(options.report)
            )
        entries[kind] = fits[kind].entry
        print(f"{kind}: {len(found)} questions, {time.perf_counter() - started:.0f} s\n{table(fits[kind])}")
        # At once: another kind may take long.
        write(path, entries)
    if options.report:
        publish(
            fits,
            options.report,
            options.cache,
            f"{COMMAND} --kinds {options.kinds} --report {options.report}",
        )


if __name__ == "__main__":
    main()
