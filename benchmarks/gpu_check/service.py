"""`pith serve` beside vLLM's own server on the engine part's weights, by `benchmarks.overhead`."""

from __future__ import annotations

import asyncio
import signal
import statistics
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml

from benchmarks.gpu_check.checkpoint import CONTEXT, made_apart
from benchmarks.gpu_check.measured import arguments, tell
from benchmarks.load.server import ROOT, CannotRun
from benchmarks.overhead import __main__ as overhead
from benchmarks.overhead.comparison import median_latency, median_ttft, ratios
from benchmarks.overhead.rounds import Comparison, Scenario
from benchmarks.overhead.sides import BARE

PITH = "pith"
# Both sides are on the GPU at the same time, and one of them is paused.
ENGINES: dict[str, dict[str, Any]] = {
    "cuda": {"dtype": "bfloat16", "max_num_seqs": 64, "gpu_memory_utilization": 0.4},
    "cpu": {
        "dtype": "float32",
        "args": {"enforce_eager": True},
        "max_num_seqs": 64,
        "distributed_executor_backend": "vllm.v1.executor.uniproc_executor.UniProcExecutor",
    },
}
ENVIRONMENTS = {
    "cuda": {"HF_HUB_OFFLINE": "1"},
    "cpu": {
        "HF_HUB_OFFLINE": "1",
        "TORCH_COMPILE_DISABLE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    },
}
LOADS = {
    "cuda": ("--clients", "16,64", "--rounds", "3", "--warm-up", "1.5", "--seconds", "5"),
    "cpu": ("--clients", "2", "--rounds", "1", "--warm-up", "0.5", "--seconds", "1"),
}


def main() -> None:
    options = arguments()
    # The servers have sessions of their own: they are stopped here where this process is asked to end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended before its time"))
    checkpoint = made_apart(options.folder / "random", options.device)
    config = options.folder / "pith.yaml"
    config.write_text(yaml.safe_dump(configuration(checkpoint, options.device)))
    words = ["--config", str(config), "--sides", "bare,pith", "--folder", str(options.folder)]
    given = overhead.arguments([*words, *LOADS[options.device]])
    with ExitStack() as until:
        sides, absent = overhead.built(given, options.folder, until)
        found = asyncio.run(overhead.measured(given, sides, absent))
    if found.absent:
        raise CannotRun("; ".join(f"{side}: {why}" for side, why in found.absent.items()))
    for row in rows(found, overhead.scenarios(given)):
        tell(options, **row)


def configuration(checkpoint: Path, device: str) -> dict[str, Any]:
    """The shipped one for a machine without a GPU, with one model and no compression."""
    whole = yaml.safe_load((ROOT / "configs/tiny.yaml").read_text(encoding="utf-8"))
    embedded = whole["models"][0]
    model = {
        "id": "random",
        "name": "Random",
        "blurb": "Random weights.",
        "checkpoint": str(checkpoint),
        "context_length": CONTEXT,
        "price": embedded["price"],
        "engine": ENGINES[device],
        "accelerator": {"kind": "gpu" if device == "cuda" else "cpu"},
        "environment": ENVIRONMENTS[device],
        # One project asks, and vLLM alone has no shares.
        "replicas": {"min": 1, "max": 1},
    }
    kept = ("state_dir", "server", "ops", "ray", "billing", "demo")
    return {**{name: whole[name] for name in kept}, "models": [model]}


def rows(found: Comparison, scenarios: list[Scenario]) -> Iterator[dict[str, Any]]:
    """Medians of the rounds, and pith's share of the bare engine's throughput round by round."""
    for scenario in scenarios:
        bare, pith = found.runs[BARE][scenario], found.runs[PITH][scenario]
        share = statistics.median(ratios(pith, bare, lambda run: run.requests_per_s))
        row: dict[str, Any] = {"load": str(scenario)}
        for side, runs in ((BARE, bare), (PITH, pith)):
            row[f"{side}: requests/s"] = statistics.median(run.requests_per_s for run in runs)
            row[f"{side}: p50 ms"] = statistics.median(map(median_latency, runs))
            if scenario.stream:
                row[f"{side}: TTFT ms"] = statistics.median(map(median_ttft, runs))
        yield row | {"pith / bare": share}


if __name__ == "__main__":
    main()
