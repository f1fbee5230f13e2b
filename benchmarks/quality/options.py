"""Options of the command line, and the work that they ask for."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.evaluation.case import Case, Task, seeded
from benchmarks.evaluation.suites.catalogue import Maker
from benchmarks.evaluation.suites.families import family_of
from benchmarks.quality.ablations import MECHANISMS

OURS = Path("../shared/eval")
ALSO = "nq,hotpot_dev,wiki2_train,musique_dev,tau_airline_dev_text"


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quality",
        description="What compression keeps: asks a running server, or with --in-process needs none.",
    )
    _add_target(parser)
    parser.add_argument("--data", type=Path, default=OURS, help="folder of .jsonl.gz files")
    parser.add_argument("--out", type=Path, default=Path("var/bench-quality"), help="folder for the report")
    parser.add_argument(
        "--suites", "--suite", help="comma-separated, such as nq,xquad_zh; default: all that the folder has"
    )
    parser.add_argument("--limit", type=int, help="cases a suite, drawn with a fixed seed")
    rows = parser.add_mutually_exclusive_group()
    rows.add_argument(
        "--held-out", action="store_true", help=f"only rows that no training of ours saw; default for {OURS}"
    )
    rows.add_argument("--all-rows", action="store_true", help="default for other folders")
    parser.add_argument("--keep", type=float, help="also ask for this probability, such as 0.95")
    parser.add_argument("--no-ratios", action="store_true", help="with --keep: ask for nothing else")
    parser.add_argument(
        "--ablations",
        nargs="?",
        const=",".join(MECHANISMS),
        metavar="NAMES",
        help="with --in-process: each mechanism left out, or those named, and what that costs",
    )
    parser.add_argument("--no-baselines", action="store_true", help="pith alone")
    parser.add_argument("--also", metavar="MODEL", help="a second, slower model, asked for fewer cases")
    parser.add_argument("--also-limit", type=int, default=12, help="its cases a suite")
    parser.add_argument(
        "--also-suites", default=ALSO, help="its suites, comma-separated, of those that are run"
    )
    parser.add_argument(
        "--write", type=Path, metavar="PAGE", help="put the tables between the marks of a page"
    )
    parser.add_argument(
        "--llmlingua", type=Path, help="folder of an LLMLingua-2 checkpoint, as one more baseline"
    )
    options = parser.parse_args(words)
    if options.no_ratios and options.keep is None:
        parser.error("--no-ratios leaves nothing to ask without --keep")
    if not options.all_rows:
        options.held_out |= options.data.resolve() == OURS.resolve()
    return options


def _add_target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="address of the server")
    parser.add_argument(
        "--key", default=os.environ.get("PITH_API_KEY", ""), help="project key; default $PITH_API_KEY"
    )
    parser.add_argument(
        "--model",
        help="compression model, default: the server's; with --in-process lexical (default) or encoder",
    )
    parser.add_argument("--clients", type=int, default=1, help="requests at a time; 1 for honest latencies")
    parser.add_argument(
        "--in-process",
        action="store_true",
        help="build the model here, in two processes, and print one table",
    )


def chosen(makers: Mapping[str, Maker], options: argparse.Namespace) -> list[Case]:
    """The cases to run. Raises `SystemExit` where nothing is left, or a suite is not in the folder."""
    names = options.suites.split(",") if options.suites else list(makers)
    unknown = [name for name in names if name not in makers]
    if unknown:
        raise SystemExit(f"--suites {','.join(unknown)}: the folder has {', '.join(makers)}")
    cases: list[Case] = []
    for name in names:
        own = [case for case in makers[name]() if case.is_held_out or not options.held_out]
        if options.limit and len(own) > options.limit:
            own = seeded(f"limit {name}").sample(own, options.limit)
        cases += own
    if not cases:
        raise SystemExit("--held-out: every row of these suites was trained on")
    return cases


def also_chosen(cases: Sequence[Case], options: argparse.Namespace) -> list[Case]:
    """Of the cases those that the second model is asked for."""
    found: list[Case] = []
    for suite in options.also_suites.split(","):
        own = [case for case in cases if case.suite == suite]
        found += seeded(f"also {suite}").sample(own, min(len(own), options.also_limit))
    return found


def tasks_of(cases: Sequence[Case], options: argparse.Namespace) -> Iterator[Task]:
    """Every case at the ratios of its suite, and with the probability that was asked for."""
    for case in cases:
        if not options.no_ratios:
            yield from (Task(case, ratio) for ratio in family_of(case.suite).ratios)
        if options.keep is not None:
            yield Task(case, keep=options.keep)
