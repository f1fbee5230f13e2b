"""Loads a running server with chat completions: `python -m benchmarks.load --clients 1,16 --tokens 64 --stream`.

python -m benchmarks.load --url http://127.0.0.1:8000 --pid $(pgrep -of 'pith serve') --rate 20
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

import uvloop

from benchmarks.load import machine, plots
from benchmarks.load.arguments import add_server, count, counts, positive
from benchmarks.load.bars import bars
from benchmarks.load.exchange import chat
from benchmarks.load.loop import Closed, Open, Pattern, Target, Window, measure
from benchmarks.load.machine import Facts
from benchmarks.load.processes import Cpu, tree
from benchmarks.load.report import (
    RUN_HEAD,
    Report,
    cpu_ms_per_request,
    no_report_on_failure,
    run_cells,
    table,
)
from benchmarks.load.sample import Run, mean_tokens_per_s

Runs = dict[Pattern, list[Run]]


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.load", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )  # fmt: skip
    add_server(parser)
    parser.add_argument("--model", default="pith-mini")
    parser.add_argument("--tokens", type=count, default=16, help="of each completion")
    parser.add_argument("--stream", action="store_true", help="server-sent events")
    parser.add_argument("--clients", type=counts, default=(1, 16), help="closed loop; default: 1,16")
    parser.add_argument("--rate", type=positive, help="open loop: requests a second, in place of --clients")
    parser.add_argument("--warm-up", type=positive, default=2.0, help="seconds before each measurement")
    parser.add_argument("--seconds", type=positive, default=5.0, help="of each measurement")
    parser.add_argument("--rounds", type=count, default=3, help="measurements of each, in turns")
    parser.add_argument("--out", type=Path, default=Path("var/bench-load"), help="folder for the report")
    return parser.parse_args(words)


async def measured(options: argparse.Namespace) -> Runs:
    """Every pattern once in each round. Raises `Failed`."""
    patterns: list[Pattern] = [Open(options.rate)] if options.rate else [*map(Closed, options.clients)]
    call = chat(options.model, tokens=options.tokens, stream=options.stream)
    target, window = Target(options.url, options.key), Window(options.warm_up, options.seconds)
    cpu = Cpu(partial(tree, options.pid)) if options.pid else None
    runs: Runs = {pattern: [] for pattern in patterns}
    with bars() as progress:
        task = progress.add_task("", total=len(patterns) * options.rounds)
        for pattern in patterns * options.rounds:
            progress.update(task, description=str(pattern))
            runs[pattern].append(await measure(target, call, pattern, window, cpu=cpu))
            progress.advance(task)
    return runs


def report(options: argparse.Namespace, facts: Facts, runs: Runs) -> Report:
    what = f"{options.tokens} tokens, {'SSE' if options.stream else 'JSON'}"
    named = {str(pattern): samples for pattern, samples in runs.items()}
    lines = [
        f"{what}, {options.warm_up:g} s of warm-up before each run.",
        "",
        *table(["load", *RUN_HEAD], [[name, *run_cells(samples)] for name, samples in named.items()]),
    ]
    for name, samples in named.items():
        if options.pid:
            cells = [[role, f"{ms:.2f}"] for role, ms in cpu_ms_per_request(samples).items()]
            lines += ["", f"CPU at {name}:", "", *table(["process", "CPU ms a request"], cells)]
    rates = [
        (pattern.clients, mean_tokens_per_s(samples))
        for pattern, samples in runs.items()
        if isinstance(pattern, Closed)
    ]
    panels = [plots.throughput("mean tokens/s", {what: rates}), *plots.times(named)]
    picture = plots.Picture(takeaway(what, runs), panels)
    body = {"runs": {name: [asdict(run) for run in samples] for name, samples in named.items()}}
    return Report("load", f"Load on {options.url}", facts, lines, body, {"load": picture})


def takeaway(what: str, runs: Runs) -> str:
    """Of the load that brought the most tokens."""
    rates = {pattern: mean_tokens_per_s(some) for pattern, some in runs.items()}
    most = max(rates, key=lambda pattern: rates[pattern])
    half_ms = statistics.median(ms for run in runs[most] for ms in run.latencies_ms())
    return f"{what}: {rates[most]:,.0f} tokens/s on the mean at {most}, half of the requests within {half_ms:,.0f} ms"


def main() -> None:
    options, facts = arguments(), machine.facts("benchmarks.load")
    with no_report_on_failure():
        runs = uvloop.run(measured(options))
    report(options, facts, runs).publish(options.out)


if __name__ == "__main__":
    main()
