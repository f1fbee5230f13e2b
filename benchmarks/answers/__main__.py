"""Measures answers under compression: `python -m benchmarks.answers --url http://127.0.0.1:8000 --key KEY`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, median

import httpx

from benchmarks.answers.arms import ARMS, WHOLE, Arm, gold_of
from benchmarks.answers.asking import TIMEOUT_S, Answer, Refused, answers
from benchmarks.answers.pairs import pairs
from benchmarks.evaluation.case import Case
from benchmarks.evaluation.suites import catalogue
from benchmarks.load import machine
from benchmarks.load.bars import bars
from benchmarks.load.plots import Panel, Picture
from benchmarks.load.report import Report, Table, table
from benchmarks.quality import options

SUITES = "xquad_en,xquad_de,nq,hotpot_dev,musique_dev"
HEAD = (
    "context", "right", "less whole, 95%", "p (McNemar)", "too long", "prompt tokens", "of them cached", "$ per 1,000",
    "TTFT, s", "total, s",
)  # fmt: skip


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.answers",
        description="The same questions with the whole context, with less of it and with none, at a running server.",
    )
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="address of the server")
    parser.add_argument("--key", default=os.environ.get("PITH_API_KEY", ""), help="default $PITH_API_KEY")
    parser.add_argument("--model", help="chat model; default: the server's")
    parser.add_argument("--data", type=Path, default=options.OURS, help="folder of .jsonl.gz files")
    parser.add_argument("--out", type=Path, default=Path("var/bench-answers"), help="folder for the report")
    parser.add_argument("--suites", default=SUITES, help="comma-separated")
    parser.add_argument("--limit", type=int, default=40, help="cases a suite, drawn with a fixed seed")
    parser.add_argument("--held-out", action=argparse.BooleanOptionalAction, default=True,
                        help="only rows that no training of ours saw")  # fmt: skip
    return parser.parse_args(words)


def judged(cases: Sequence[Case]) -> list[Case]:
    """Those whose answer is a string, and for which it is known what of the context gives it."""
    return [case for case in cases if case.answers and gold_of(case)]


def measure(cases: Sequence[Case], asked: argparse.Namespace) -> list[Answer]:
    """Raises `Refused` and `httpx.TransportError`."""
    headers = {"Authorization": f"Bearer {asked.key}"}
    with httpx.Client(base_url=asked.url, headers=headers, timeout=TIMEOUT_S) as http, bars() as progress:
        found = answers(http, cases, ARMS, asked.model)
        return list(progress.track(found, total=len(cases) * len(ARMS), description="answers"))


def rights(found: Sequence[Answer], arm: Arm) -> Mapping[str, bool]:
    return {answer.case: answer.is_right for answer in found if answer.arm == arm.name}


def cells(found: Sequence[Answer], arm: Arm) -> list[str]:
    """One arm's row. Figures are of the requests that fit; times are medians."""
    own = [answer for answer in found if answer.arm == arm.name]
    sent = [answer for answer in own if answer.fits]
    compared = pairs(rights(found, WHOLE), rights(found, arm))
    low, high = compared.interval()
    against = ["", ""] if arm == WHOLE else [f"{low:+.1%} to {high:+.1%}", f"{compared.p_value():.2g}"]
    return [
        arm.name,
        f"{fmean(answer.is_right for answer in own):.1%}",
        *against,
        str(len(own) - len(sent)),
        f"{_mean(sent, 'prompt_tokens'):,.0f}",
        f"{_mean(sent, 'cached_tokens'):,.0f}",
        f"{1000 * _mean(sent, 'usd'):.4f}",
        *(
            f"{median(getattr(each, name) for each in sent):.2f}" if sent else ""
            for name in ("ttft_s", "total_s")
        ),
    ]


def _mean(sent: Sequence[Answer], name: str) -> float:
    return fmean(getattr(answer, name) for answer in sent) if sent else 0.0


def suite_table(found: Sequence[Answer]) -> Table:
    return table(HEAD, [cells(found, arm) for arm in ARMS])


def picture(by_suite: Mapping[str, Sequence[Answer]]) -> Picture:
    """Share right against prompt tokens: a line for each suite, through the arms by their size."""
    lines = {suite: sorted(_point(found, arm) for arm in ARMS) for suite, found in by_suite.items()}
    panel = Panel(
        "Right answers by what is sent", "prompt tokens", "share right", lines, continuous_x=True, top=1.0
    )
    return Picture("What a question comes with, and how often the answer is right", [panel])


def _point(found: Sequence[Answer], arm: Arm) -> tuple[float, float]:
    own = [answer for answer in found if answer.arm == arm.name]
    return _mean([answer for answer in own if answer.fits], "prompt_tokens"), fmean(
        each.is_right for each in own
    )


def report_of(found: Sequence[Answer], facts: Mapping[str, str]) -> Report:
    by_suite = {
        suite: [each for each in found if each.suite == suite] for suite in {each.suite: 0 for each in found}
    }
    lines: list[str] = []
    for suite, own in {"all": found, **by_suite}.items():
        lines += [f"## {suite}: {len({each.case for each in own})} cases", "", *suite_table(own), ""]
    body = {"answers": [asdict(each) for each in found]}
    return Report("answers", "Answers under compression", facts, lines, body, {"answers": picture(by_suite)})


def main() -> None:
    asked = arguments()
    try:
        cases = judged(options.chosen(catalogue.makers(asked.data), asked))
        facts = machine.facts("benchmarks.answers")
        found = measure(cases, asked)
    except Refused as error:
        raise SystemExit(f"the server refused {error}") from error
    except httpx.TransportError as error:
        raise SystemExit(f"no server answers at {asked.url}: {error}") from error
    what = {"server": asked.url, "model": asked.model or "server default", "data": str(asked.data)}
    report_of(found, {**facts, **what}).publish(asked.out)


if __name__ == "__main__":
    main()
