"""Measures answers under compression: `python -m benchmarks.answers --url http://127.0.0.1:8000 --key KEY`."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path

import httpx

from benchmarks.answers.arms import Arm, UnknownArm, arms_of
from benchmarks.answers.asking import TIMEOUT_S, Reader, Refused
from benchmarks.answers.cases import ROWS, drawn
from benchmarks.answers.prompts import DEFAULT, PROMPTS
from benchmarks.answers.record import OtherRun, Record
from benchmarks.answers.report import report_of
from benchmarks.answers.running import Run
from benchmarks.evaluation.case import Case
from benchmarks.evaluation.suites import catalogue
from benchmarks.load import machine
from benchmarks.load.bars import bars
from benchmarks.quality import options

SUITES = "xquad_en,xquad_de,nq,hotpot_dev,musique_dev"


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.answers",
        description="The same questions with the whole context, with less of it and with none, at a running server.",
    )
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="address of the server")
    parser.add_argument("--key", default=os.environ.get("PITH_API_KEY", ""), help="default $PITH_API_KEY")
    parser.add_argument("--model", help="chat model; default: the server's")
    parser.add_argument("--prompt", choices=PROMPTS, default=DEFAULT, help=f"default {DEFAULT}")
    parser.add_argument("--data", type=Path, default=options.OURS, help="folder of .jsonl.gz files")
    parser.add_argument("--out", type=Path, default=Path("var/bench-answers"), help="folder for the report")
    parser.add_argument("--suites", default=SUITES, help="comma-separated")
    parser.add_argument("--arms", default="", help="comma-separated, such as 0.1,gold; default: all")
    parser.add_argument(
        "--llmlingua", type=Path, help="folder of an LLMLingua-2 checkpoint, as one more baseline"
    )
    parser.add_argument("--limit", type=int, default=40, help="cases a suite, drawn with a fixed seed")
    parser.add_argument("--rows", choices=ROWS, default="held-out",
                        help="by whether training of ours saw them; default held-out")  # fmt: skip
    parser.add_argument("--clients", type=int, default=1, help="cases at a time; 1 for honest times")
    parser.add_argument("--alone", type=int, default=0, help="cases before these, one request at a time")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="ask for nothing after them")
    parser.add_argument("--resume", action="store_true", help="keep the answers that the folder has")
    return parser.parse_args(words)


def cases_of(asked: argparse.Namespace) -> list[Case]:
    makers = catalogue.makers(asked.data)
    suites = asked.suites.split(",")
    unknown = [name for name in suites if name not in makers]
    if unknown:
        raise SystemExit(f"--suites {','.join(unknown)}: {asked.data} has {', '.join(makers) or 'none'}")
    return drawn(makers, suites, asked.rows, asked.limit)


def record_of(asked: argparse.Namespace) -> Record:
    of = {"model": asked.model or "server default", "prompt": asked.prompt}
    path = asked.out / "answers.jsonl"
    try:
        return Record.resume(path, of) if asked.resume else Record.begin(path, of)
    except OtherRun as error:
        raise SystemExit(f"--resume: {error}") from error


def measure(cases: Sequence[Case], arms: Sequence[Arm], record: Record, asked: argparse.Namespace) -> None:
    """Raises `Refused` and `httpx.TransportError`."""
    headers = {"Authorization": f"Bearer {asked.key}"}
    until = time.monotonic() + 60 * asked.minutes
    with httpx.Client(base_url=asked.url, headers=headers, timeout=TIMEOUT_S) as http, bars() as progress:
        run = Run(Reader(http, PROMPTS[asked.prompt], asked.model), arms, record, until)
        done = run.over(cases, alone=asked.alone, clients=asked.clients)
        for _ in progress.track(done, total=len(cases), description="cases"):
            pass


def main() -> None:
    asked = arguments()
    try:
        arms = arms_of(asked.arms, asked.llmlingua)
    except (UnknownArm, FileNotFoundError) as error:
        raise SystemExit(str(error)) from error
    cases, record = cases_of(asked), record_of(asked)
    facts = machine.facts("benchmarks.answers")
    try:
        measure(cases, arms, record, asked)
    except Refused as error:
        raise SystemExit(f"the server refused {error}") from error
    except httpx.TransportError as error:
        raise SystemExit(f"no server answers at {asked.url}: {error}") from error
    what = {"server": asked.url, "model": asked.model or "server default", "data": str(asked.data),
            "prompt": asked.prompt, "rows": asked.rows, "clients": str(asked.clients)}  # fmt: skip
    try:
        made = report_of(list(record.answers.values()), [arm.name for arm in arms], {**facts, **what})
    except ValueError as error:
        raise SystemExit(f"nothing to report: {error}") from error
    made.publish(asked.out)


if __name__ == "__main__":
    main()
