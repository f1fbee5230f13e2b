"""Time of the lexical compressor by size of input, in one process on one thread, without HTTP; what takes the
time, and how much memory it needs.

    python -m benchmarks.lexical [--tokens 2000,10000,100000] [--ratio 0.25] [--text FILE] [--runs 21] [--profile]
    python -m benchmarks.lexical --memory

The text is Markdown of made-up sentences with a fixed seed, or the start of FILE, repeated where it is too short. The
times are those of the receipts, tokens those of the embedded tokenizer. Memory is the peak of the process beyond what
it had, each input in a process of its own that has compressed a short text before; Linux tells it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.progress import track

from benchmarks.load.text import QUERY, made_up
from benchmarks.resident import peak_growth_bytes
from benchmarks.stages import sampled, shares
from compression.build import load_counter, plain_compressor
from compression.pipeline.compression_model import CompressionRequest
from compression.pipeline.pipeline import Compressor
from compression.pipeline.spec import ModelSpec
from compression.source.token_counter import TokenCounter

TOKENIZER = Path("models/embedded/tokenizer")
LARGEST = 2 * 1024 * 1024
# What memory is measured on: prose of the size that times are measured on, and the largest inputs that are taken.
MEMORY_INPUTS: dict[str, Callable[[], str]] = {
    "made-up prose, 100,000 tokens": lambda: made_up(300_000)[:282_685],
    "made-up prose, 2 MiB": lambda: made_up(LARGEST)[:LARGEST],
    "one word a line, 2 MiB": lambda: "word\n" * (LARGEST // 5),
    "300,000 different words, one a line": lambda: "\n".join(f"w{number}" for number in range(300_000))[
        :LARGEST
    ],
}


@dataclass(frozen=True, slots=True)
class Row:
    """One size: milliseconds by the receipt's clock, and of CPU time of this process."""

    tokens: int
    output_tokens: int
    p50_ms: float
    p95_ms: float
    cpu_p50_ms: float


def of_size(tokens: int, text: str, counter: TokenCounter) -> str:
    """The start of `text`, or of as many copies as it takes, that has about so many tokens."""
    per_character = counter.count(text) / len(text)
    characters = int(tokens / per_character)
    return (text * (characters // len(text) + 1))[:characters]


def measure(compressor: Compressor, text: str, ratio: float, runs: int) -> Row:
    request = CompressionRequest(QUERY, text, ratio)
    compressor.compress(request)
    wall, cpu = [], []
    for _ in track(range(runs), f"{len(text):,} characters"):
        before = time.process_time()
        receipt = compressor.compress(request).receipt
        cpu.append(1000 * (time.process_time() - before))
        wall.append(receipt.latency_ms)
    ordered = sorted(wall)
    p95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    return Row(
        receipt.original_tokens, receipt.output_tokens, statistics.median(wall), p95, statistics.median(cpu)
    )


def profile(compressor: Compressor, text: str, ratio: float, runs: int) -> str:
    """The shares of the stages, from so many runs."""
    request = CompressionRequest(QUERY, text, ratio)
    with sampled() as found:
        for _ in range(runs):
            compressor.compress(request)
    return shares(found)


def load() -> tuple[Compressor, TokenCounter]:
    """The embedded model as a server has it."""
    counter = load_counter(str(TOKENIZER), name="pith-mini")
    return plain_compressor(
        ModelSpec("pith-lexical", "lexical", str(TOKENIZER), "pith-mini"), counter
    ), counter


def memory_times_input(name: str) -> float:
    """Peak memory of one compression by bytes of its input. To be called in a process of its own."""
    compressor, _ = load()
    text = MEMORY_INPUTS[name]()
    compressor.compress(CompressionRequest(QUERY, text[:5000], 0.25))
    return peak_growth_bytes(lambda: compressor.compress(CompressionRequest(QUERY, text, 0.25))) / len(
        text.encode()
    )


def report_memory() -> str:
    lines = ["| input | peak memory by bytes of input |", "|---|---|"]
    for name in MEMORY_INPUTS:
        # A fresh one each: what a process has freed it may use again.
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            lines.append(f"| {name} | {pool.apply(memory_times_input, (name,)):.1f} |")
    return "\n".join(lines)


def report(rows: Sequence[Row]) -> str:
    lines = ["| tokens in | tokens out | p50 ms | p95 ms | CPU p50 ms |", "|---|---|---|---|---|"]
    for row in rows:
        cells = f"{row.p50_ms:.1f} | {row.p95_ms:.1f} | {row.cpu_p50_ms:.1f}"
        lines.append(f"| {row.tokens:,} | {row.output_tokens:,} | {cells} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", default="2000,10000,100000", help="sizes, with commas between them")
    parser.add_argument("--ratio", type=float, default=0.25)
    parser.add_argument("--text", type=Path, help="a text file in place of the made-up one")
    parser.add_argument("--runs", type=int, default=21)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--profile", action="store_true", help="also the stages' shares, of the largest size")
    parser.add_argument("--memory", action="store_true", help="memory in place of times")
    options = parser.parse_args()
    if options.memory:
        print(report_memory())
        return
    compressor, counter = load()
    sizes = [int(size) for size in options.tokens.split(",")]
    text = options.text.read_text(encoding="utf-8") if options.text else made_up(6 * max(sizes))
    if not text:
        sys.exit(f"--text {options.text}: is empty")
    rows = [measure(compressor, of_size(size, text, counter), options.ratio, options.runs) for size in sizes]
    facts = {"python": platform.python_version(), "machine": platform.machine(), "ratio": options.ratio}
    print(json.dumps({**facts, "rows": [asdict(row) for row in rows]}) if options.json else report(rows))
    if options.profile:
        print()
        print(profile(compressor, of_size(max(sizes), text, counter), options.ratio, options.runs))


if __name__ == "__main__":
    main()
