"""Measures answers under compression: `python -m benchmarks.answers --url http://127.0.0.1:8000 --key KEY`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import httpx

from benchmarks.answers.arms import Arm, UnknownArm, arms_of
from benchmarks.answers.asking import TIMEOUT_S, Reader, Refused
from benchmarks.answers.options import cases_of, parser_of, record_of
from benchmarks.answers.prompts import PROMPTS
from benchmarks.answers.record import Record
from benchmarks.answers.report import report_of
from benchmarks.answers.running import Run
from benchmarks.evaluation.case import Case
from benchmarks.load import machine
from benchmarks.load.bars import bars


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = parser_of(
        "python -m benchmarks.answers",
        "The same questions with the whole context, with less of it and with none, at a running server.",
        out=Path("var/bench-answers"),
        limit=40,
    )
    parser.add_argument("--arms", default="", help="comma-separated, such as 0.1,gold; default: all")
    parser.add_argument(
        "--llmlingua", type=Path, help="folder of an LLMLingua-2 checkpoint, as one more baseline"
    )
    parser.add_argument("--clients", type=int, default=1, help="cases at a time; 1 for honest times")
    parser.add_argument("--alone", type=int, default=0, help="cases before these, one request at a time")
    return parser.parse_args(words)


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
