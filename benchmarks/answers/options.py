"""Options that both measurements of answers share, and the cases and the record that they ask for."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from benchmarks.answers.cases import ROWS, drawn
from benchmarks.answers.prompts import DEFAULT, PROMPTS
from benchmarks.answers.record import OtherRun, Record
from benchmarks.evaluation.case import Case
from benchmarks.evaluation.suites import catalogue
from benchmarks.quality.options import OURS

SUITES = "xquad_en,xquad_de,nq,hotpot_dev,musique_dev"


def parser_of(prog: str, description: str, *, out: Path, limit: int) -> argparse.ArgumentParser:
    """`out` and `limit` are defaults."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="address of the server")
    parser.add_argument("--key", default=os.environ.get("PITH_API_KEY", ""), help="default $PITH_API_KEY")
    parser.add_argument("--model", help="chat model; default: the server's")
    parser.add_argument("--prompt", choices=PROMPTS, default=DEFAULT, help=f"default {DEFAULT}")
    parser.add_argument("--data", type=Path, default=OURS, help="folder of .jsonl.gz files")
    parser.add_argument("--out", type=Path, default=out, help="folder for the report")
    parser.add_argument("--suites", default=SUITES, help="comma-separated")
    parser.add_argument("--limit", type=int, default=limit, help="cases a suite, drawn with a fixed seed")
    parser.add_argument("--rows", choices=ROWS, default="held-out",
                        help="by whether training of ours saw them; default held-out")  # fmt: skip
    parser.add_argument("--minutes", type=float, default=float("inf"), help="ask for nothing after them")
    parser.add_argument("--resume", action="store_true", help="keep the answers that the folder has")
    return parser


def cases_of(asked: argparse.Namespace) -> list[Case]:
    """Raises `SystemExit` for a suite that the folder does not have."""
    makers = catalogue.makers(asked.data)
    suites = asked.suites.split(",")
    unknown = [name for name in suites if name not in makers]
    if unknown:
        raise SystemExit(f"--suites {','.join(unknown)}: {asked.data} has {', '.join(makers) or 'none'}")
    return drawn(makers, suites, asked.rows, asked.limit)


def record_of(asked: argparse.Namespace) -> Record:
    """Raises `SystemExit` where there are answers of another run to go on with."""
    of = {"model": asked.model or "server default", "prompt": asked.prompt}
    path = asked.out / "answers.jsonl"
    try:
        return Record.resume(path, of) if asked.resume else Record.begin(path, of)
    except OtherRun as error:
        raise SystemExit(f"--resume: {error}") from error
