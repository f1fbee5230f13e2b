"""Measures a running server: `python -m benchmarks.quality --url http://127.0.0.1:8000 --key KEY`."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import httpx

from benchmarks.load import machine
from benchmarks.load.bars import bars
from benchmarks.quality import contexts, report
from benchmarks.quality.baselines import BASELINES
from benchmarks.quality.case import Case, seeded
from benchmarks.quality.client import Refused, Target, replies
from benchmarks.quality.data import BadRow
from benchmarks.quality.scoring import Outcome, judge, ratios_of


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality", description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="address of the server")
    parser.add_argument(
        "--key", default=os.environ.get("PITH_API_KEY", ""), help="project key; default $PITH_API_KEY"
    )
    parser.add_argument("--model", help="compression model; default: the server's")
    parser.add_argument("--data", type=Path, default=Path("../shared/eval"), help="folder of .jsonl.gz files")
    parser.add_argument("--out", type=Path, default=Path("var/bench-quality"), help="folder for the report")
    parser.add_argument(
        "--suites", help="comma-separated, such as nq,xquad_zh; default: all that the folder has"
    )
    parser.add_argument("--limit", type=int, help="cases a suite, drawn with a fixed seed")
    parser.add_argument(
        "--held-out", action="store_true", help="of ../shared/eval only what no training of ours saw"
    )
    parser.add_argument("--clients", type=int, default=1, help="requests at a time; 1 for honest latencies")
    parser.add_argument("--no-baselines", action="store_true", help="the server alone")
    return parser.parse_args(words)


def chosen(found: dict[str, list[Case]], options: argparse.Namespace) -> list[Case]:
    """The cases to run. Raises `SystemExit` where nothing is left, or a suite is not in the folder."""
    names = options.suites.split(",") if options.suites else list(found)
    unknown = [name for name in names if name not in found]
    if unknown:
        raise SystemExit(f"--suites {','.join(unknown)}: the folder has {', '.join(found)}")
    cases: list[Case] = []
    for name in names:
        own = [case for case in found[name] if case.is_held_out or not options.held_out]
        if options.limit and len(own) > options.limit:
            own = seeded(f"limit {name}").sample(own, options.limit)
        cases += own
    if not cases:
        raise SystemExit("--held-out: every row of these suites was trained on")
    return cases


async def measure(target: Target, work: Sequence[tuple[Case, float]], selector: str) -> list[Outcome]:
    """Every case at every ratio over HTTP; judged as the replies come, summed up in the order of the work."""
    outcomes: dict[tuple[str, float], Outcome] = {}
    with bars() as progress:
        task = progress.add_task(f"{selector} over HTTP", total=len(work))
        async for reply in replies(target, work):
            receipt = reply.receipt
            outcomes[reply.case.name, reply.ratio] = judge(
                reply.case, reply.ratio, selector, reply.output, measured_ratio=receipt["compression_ratio"],
                latency_ms=receipt["latency_ms"], flags=tuple(flag["code"] for flag in receipt["risk_flags"]),
            )  # fmt: skip
            progress.advance(task)
    return [outcomes[case.name, ratio] for case, ratio in work]


def compare(work: Sequence[tuple[Case, float]]) -> list[Outcome]:
    outcomes = []
    with bars() as progress:
        for name, select in BASELINES.items():
            for case, ratio in progress.track(work, description=name):
                outcomes.append(judge(case, ratio, name, select(case, ratio)))
    return outcomes


def main() -> None:
    options, facts = arguments(), machine.facts("benchmarks.quality")
    try:
        cases = chosen(contexts.load(options.data), options)
    except (FileNotFoundError, BadRow) as error:
        raise SystemExit(f"--data {options.data}: {error}") from error
    work = [(case, ratio) for case in cases for ratio in ratios_of(case.suite)]
    selector = options.model or "server default"
    target = Target(options.url.rstrip("/"), options.key, options.model, options.clients)
    try:
        outcomes = asyncio.run(measure(target, work, selector))
    except Refused as error:
        raise SystemExit(f"the server refused {error}") from error
    except httpx.TransportError as error:
        raise SystemExit(f"no server answers at {options.url}: {error}") from error
    if not options.no_baselines:
        outcomes += compare(work)
    what = {"server": options.url, "model": selector, "data": str(options.data), "clients": str(options.clients),
            "rows": "held out from training" if options.held_out else "all"}  # fmt: skip
    report.report({**facts, **what}, outcomes).publish(options.out)


if __name__ == "__main__":
    main()
