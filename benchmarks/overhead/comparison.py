"""The comparison in tables and plots: each side's figures, and their ratios to the bare engine's round by round."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict

from benchmarks.load import plots
from benchmarks.load.loop import Closed
from benchmarks.load.machine import Facts
from benchmarks.load.report import RUN_HEAD, Report, cpu_ms_per_request, run_cells, table
from benchmarks.load.sample import Run, percentile
from benchmarks.overhead.picture import Lines, picture
from benchmarks.overhead.rounds import Comparison, Scenario

Figure = Callable[[Run], float]


def spread(values: Sequence[float], digits: int = 2) -> str:
    """The median of the rounds, and the least and the greatest of them; a dash where no round gives any."""
    if not values:
        return "–"  # noqa: RUF001
    least, middle, most = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f} ({least:.{digits}f} to {most:.{digits}f})"


def ratios(of: Sequence[Run], to: Sequence[Run], figure: Figure) -> list[float]:
    """Of runs that followed each other, so that what else the machine did met both. A figure too small for the clock,
    which is 0, gives none."""
    pairs = [(figure(one), figure(other)) for one, other in zip(of, to, strict=True)]
    return [one / other for one, other in pairs if other]


def median_latency(run: Run) -> float:
    return percentile(run.latencies_ms(), 50)


def median_ttft(run: Run) -> float:
    return percentile(run.ttfts_ms(), 50)


def server_cpu(run: Run) -> float:
    """Without the load generator's share."""
    return sum(cpu_ms for role, cpu_ms in run.cpu_ms_per_request().items() if role != "load generator")


def ratio_lines(comparison: Comparison, scenario: Scenario, base: str) -> list[str]:
    """Every side against one of them."""
    head = ["side", "requests/s", "tokens/s", "added latency p50 ms", "added TTFT p50 ms", "CPU a request"]
    rows = []
    reference = comparison.runs[base][scenario]
    for side, runs in comparison.runs.items():
        if side == base:
            continue
        own = runs[scenario]
        pairs = list(zip(own, reference, strict=True))
        added = [median_latency(one) - median_latency(other) for one, other in pairs]
        first = [median_ttft(one) - median_ttft(other) for one, other in pairs] if scenario.stream else []
        rows.append(
            [
                side,
                spread(ratios(own, reference, lambda run: run.requests_per_s)),
                spread(ratios(own, reference, lambda run: run.tokens_per_s)),
                spread(added, 1),
                spread(first, 1) if first else "",
                spread(ratios(own, reference, server_cpu)),
            ]
        )
    return [f"Against {base}, median (least to greatest) of the rounds:", "", *table(head, rows)]


def cpu_lines(comparison: Comparison, scenario: Scenario) -> list[str]:
    """CPU milliseconds a request, processes down, sides across."""
    by_side = {side: cpu_ms_per_request(runs[scenario]) for side, runs in comparison.runs.items()}
    roles = list(dict.fromkeys(role for cpu in by_side.values() for role in cpu))
    rows = [
        [role, *(f"{cpu[role]:.2f}" if role in cpu else "" for cpu in by_side.values())] for role in roles
    ]
    rows.append(["all", *(f"{sum(cpu.values()):.2f}" for cpu in by_side.values())])
    return ["CPU ms a request by process:", "", *table(["process", *by_side], rows)]


def lines(comparison: Comparison, scenarios: Sequence[Scenario], bases: Sequence[str]) -> list[str]:
    found = [f"- not measured: {name}: {reason}" for name, reason in comparison.absent.items()]
    for scenario in scenarios:
        rows = [[side, *run_cells(runs[scenario])] for side, runs in comparison.runs.items()]
        found += ["", f"## {scenario}", "", *table(["side", *RUN_HEAD], rows), ""]
        for base in (base for base in bases if base in comparison.runs and len(comparison.runs) > 1):
            found += [*ratio_lines(comparison, scenario, base), ""]
        found += cpu_lines(comparison, scenario)
    return found


def report(
    comparison: Comparison, scenarios: Sequence[Scenario], bases: Sequence[str], facts: Facts
) -> Report:
    body = {
        "not measured": comparison.absent,
        "sides": {
            side: {str(scenario): [asdict(run) for run in rounds] for scenario, rounds in runs.items()}
            for side, runs in comparison.runs.items()
        },
    }
    text = lines(comparison, scenarios, bases)
    return Report("overhead", "Overhead", facts, text, body, pictures(comparison, scenarios))


def pictures(comparison: Comparison, scenarios: Sequence[Scenario]) -> dict[str, plots.Picture]:
    """One for JSON, one for SSE: by clients, and distributions with the most of them."""
    found = {}
    for kind, stream in (("JSON", False), ("SSE", True)):
        if chosen := [scenario for scenario in scenarios if scenario.stream == stream]:
            last = chosen[-1]
            busiest = {side: runs[last] for side, runs in comparison.runs.items()}
            more = plots.times(busiest, of=f", {Closed(last.clients)}")
            rates = _by_clients(comparison, chosen, lambda run: run.requests_per_s)
            cpu_ms = _by_clients(comparison, chosen, lambda run: sum(run.cpu_ms_per_request().values()))
            found[f"overhead-{kind.lower()}"] = picture(kind, rates, cpu_ms, more)
    return found


def _by_clients(comparison: Comparison, chosen: Sequence[Scenario], figure: Figure) -> Lines:
    return {
        side: [(s.clients, statistics.median(map(figure, runs[s]))) for s in chosen]
        for side, runs in comparison.runs.items()
    }
