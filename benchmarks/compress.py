"""Latency of a running server's compressions, over HTTP, by size of input, ratio and number of clients.

    python -m benchmarks.compress [--url …] [--models pith-lexical] [--tokens 500,2000,10000] [--ratios 0.5,0.25,0.1]

The inputs are starts of one made-up text at different places, so that none is in a cache; sizes are met within a few
percent and reported as the receipts count them. Tokens a second are those taken in; `server` is the receipt's own time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import uvloop

from benchmarks.load import machine, plots
from benchmarks.load.arguments import add_server, count, counts, positive
from benchmarks.load.bars import bars
from benchmarks.load.exchange import Call, Clock, exchange
from benchmarks.load.loop import Closed, Target, Window, measure
from benchmarks.load.machine import Facts
from benchmarks.load.processes import Cpu, tree
from benchmarks.load.report import Report, cpu_ms_per_request, no_report_on_failure, spans, table
from benchmarks.load.sample import Figures, Run, mean_tokens_per_s
from benchmarks.load.text import QUERY, made_up

PATH = "/v1/compress"
INPUTS = 16
STRIDE = 997
CALIBRATION_CHARACTERS = 4000


@dataclass(frozen=True, slots=True)
class Scenario:
    """One row. `tokens` is what was asked for; None for the model asks the server's default."""

    model: str | None
    tokens: int
    ratio: float
    clients: int

    def __str__(self) -> str:
        return f"{self.model or 'default'}, {self.tokens:,} tokens, {self.ratio:g}, {Closed(self.clients)}"


Runs = dict[Scenario, list[Run]]
Lines = dict[str, list[tuple[float, float]]]


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compress", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )  # fmt: skip
    add_server(parser)
    parser.add_argument("--models", type=lambda text: tuple(text.split(",")), default=(None,))
    parser.add_argument("--tokens", type=counts, default=(500, 2000, 10_000), help="default: 500,2000,10000")
    parser.add_argument("--ratios", type=_ratios, default=(0.5, 0.25, 0.1), help="default: 0.5,0.25,0.1")
    parser.add_argument("--clients", type=counts, default=(1, 8), help="default: 1,8")
    parser.add_argument("--warm-up", type=positive, default=1.0, help="seconds before each measurement")
    parser.add_argument("--seconds", type=positive, default=3.0, help="of each measurement")
    parser.add_argument("--rounds", type=count, default=2, help="measurements of each, in turns")
    parser.add_argument("--out", type=Path, default=Path("var/bench-compress"), help="folder for the report")
    return parser.parse_args(words)


def _ratios(text: str) -> tuple[float, ...]:
    found = tuple(positive(part) for part in text.split(","))
    if above := [ratio for ratio in found if ratio > 1]:
        raise argparse.ArgumentTypeError(f"{above[0]:g} is above 1")
    return found


def scenarios(options: argparse.Namespace) -> list[Scenario]:
    return [
        Scenario(model, tokens, ratio, clients)
        for model in options.models
        for tokens in options.tokens
        for ratio in options.ratios
        for clients in options.clients
    ]


def receipt_figures(reply: Mapping[str, Any]) -> Figures:
    receipt = reply["receipt"]
    return Figures(
        int(receipt["original_tokens"]), float(receipt["compression_ratio"]), float(receipt["latency_ms"])
    )


def call(scenario: Scenario, text: str, characters: int) -> Call:
    """Inputs of so many characters from different places of the text, which is read as a ring."""
    doubled = text + text[:characters]
    named = {"model": scenario.model} if scenario.model else {}
    bodies = tuple(
        orjson.dumps(
            {
                **named,
                "query": QUERY,
                "input": doubled[start : start + characters],
                "compression": {"target_ratio": scenario.ratio},
            }
        )
        for start in (number * STRIDE % len(text) for number in range(INPUTS))
    )
    return Call(PATH, bodies, False, receipt_figures)


async def characters_per_token(target: Target, model: str | None, text: str) -> float:
    """By the model's own tokenizer, asked over HTTP. Raises `Failed`."""
    asked = call(Scenario(model, 0, 0.5, 1), text, CALIBRATION_CHARACTERS)
    async with target.session() as session:
        clock = Clock(time.perf_counter())
        sample = await exchange(session, asked, asked.bodies[0], clock=clock, due_s=0.0)
    return CALIBRATION_CHARACTERS / max(1, sample.figures.tokens)


async def measured(options: argparse.Namespace) -> Runs:
    """Every scenario once in each round. Raises `Failed`."""
    target, window = Target(options.url, options.key), Window(options.warm_up, options.seconds)
    cpu = Cpu(partial(tree, options.pid)) if options.pid else None
    text = made_up(8 * max(options.tokens) + CALIBRATION_CHARACTERS)
    size = {model: await characters_per_token(target, model, text) for model in options.models}
    runs: Runs = {scenario: [] for scenario in scenarios(options)}
    with bars() as progress:
        task = progress.add_task("", total=len(runs) * options.rounds)
        for scenario in [*runs] * options.rounds:
            progress.update(task, description=str(scenario))
            asked = call(scenario, text, int(scenario.tokens * size[scenario.model]))
            runs[scenario].append(await measure(target, asked, Closed(scenario.clients), window, cpu=cpu))
            progress.advance(task)
    return runs


def row(scenario: Scenario, runs: Sequence[Run]) -> list[str]:
    found = [sample.figures for run in runs for sample in run.samples]
    seconds = sum(run.seconds for run in runs)
    return [
        scenario.model or "default",
        f"{statistics.median(one.tokens for one in found):,.0f}",
        f"{scenario.ratio:g}",
        f"{statistics.mean(one.ratio or 0.0 for one in found):.3f}",
        str(scenario.clients),
        f"{len(found):,}",
        f"{len(found) / seconds:,.1f}",
        f"{sum(one.tokens for one in found) / seconds:,.0f}",
        spans([ms for run in runs for ms in run.latencies_ms()]),
        spans([one.server_ms for one in found if one.server_ms is not None]),
        f"{sum(cpu_ms_per_request(runs).values()):.1f}",
    ]


HEAD = (
    "model", "tokens in", "target", "ratio", "clients", "requests", "requests/s", "tokens/s", "latency p50 / p99 ms",
    "server p50 / p99 ms", "CPU ms a request",
)  # fmt: skip


def report(options: argparse.Namespace, facts: Facts, runs: Runs) -> Report:
    whose = "all processes" if options.pid else "the load generator alone, since --pid was not given"
    lines = [
        f"Closed loop, {options.warm_up:g} s of warm-up before each run; CPU of {whose}.", "",
        *table(HEAD, [row(scenario, samples) for scenario, samples in runs.items()]),
    ]  # fmt: skip
    body = {"runs": {str(scenario): [asdict(run) for run in samples] for scenario, samples in runs.items()}}
    pictures = {"compress": picture(runs)}
    return Report("compress", f"Compression on {options.url}", facts, lines, body, pictures)


def picture(runs: Runs) -> plots.Picture:
    """By size: above medians of the latency, below the mean throughput, a panel a ratio."""
    ratios = sorted({scenario.ratio for scenario in runs}, reverse=True)
    latency: dict[float, Lines] = {ratio: defaultdict(list) for ratio in ratios}
    rates: dict[float, Lines] = {ratio: defaultdict(list) for ratio in ratios}
    for scenario, samples in runs.items():
        name = f"{scenario.model or 'default'}, {Closed(scenario.clients)}"
        latency_ms = statistics.median(ms for run in samples for ms in run.latencies_ms())
        rate = mean_tokens_per_s(samples)
        latency[scenario.ratio][name].append((scenario.tokens, latency_ms))
        rates[scenario.ratio][name].append((scenario.tokens, rate))
    panels = [
        *(
            plots.Panel(
                f"latency, ratio {ratio:g}", "tokens in", "p50 ms", latency[ratio], log_x=True, log_y=True
            )
            for ratio in ratios
        ),
        *(
            plots.Panel(f"throughput, ratio {ratio:g}", "tokens in", "tokens/s", rates[ratio], log_x=True)
            for ratio in ratios
        ),
    ]
    return plots.Picture(takeaway(runs), panels)


def takeaway(runs: Runs) -> str:
    """Of the run that took in the most tokens a second."""
    rates = {scenario: mean_tokens_per_s(some) for scenario, some in runs.items()}
    best = max(rates, key=lambda scenario: rates[scenario])
    return (
        f"Up to {rates[best]:,.0f} tokens/s are compressed: {best.tokens:,} tokens to {best.ratio:g} of them, "
        f"{Closed(best.clients)}"
    )


def main() -> None:
    options, facts = arguments(), machine.facts("benchmarks.compress")
    with no_report_on_failure():
        runs = uvloop.run(measured(options))
    report(options, facts, runs).publish(options.out)


if __name__ == "__main__":
    main()
