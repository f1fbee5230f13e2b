"""The token classifier beside `llmlingua.PromptCompressor`, on the same random weights, in one process on the CPU.

It speaks no HTTP, as other benchmarks do: the original has none. `python -m benchmarks.token_classifier --help`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.sample_checkpoints import TEXTS, make_checkpoint
from compression.neural.batching import NeuralService, Windows
from compression.neural.networks import Dtype, Placement
from compression.neural.token_classifier import TokenClassifier

SHAPES = {"12x768": (12, 768), "6x384": (6, 384)}
SHORT_INPUTS, SHORT_TOKENS, LONG_TOKENS, RATE = 32, 100, 4300, 0.5
# Targets of the project: how many times as fast as PromptCompressor in fp32.
TARGETS = {
    ("float32", "short"): 4.5,
    ("float32", "long"): 1.0,
    ("bfloat16", "short"): 8.0,
    ("bfloat16", "long"): 1.6,
}
TOKEN_BUDGET = 1024


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one round: by the clock, and of this process on any core, which other processes disturb less."""

    wall_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison: medians over the rounds and how many times faster ours is."""

    shape: str
    input: str
    dtype: str
    original_wall_s: float
    wall_s: float
    wall_ratio: float
    cpu_ratio: float
    target: float


class FakeEncoding:
    """A fake of tiktoken's encoding, whose file is downloaded: a token for every four characters of a word."""

    def encode(self, text: str) -> list[int]:
        return [0] * sum(-(-len(word) // 4) for word in text.split())


class Ours:
    """The token classifier as a server runs it: requests at once, batched by the service."""

    def __init__(
        self,
        folder: Path,
        dtype: Dtype,
        threads: int | None,
        *,
        device: str = "cpu",
        token_budget: int = TOKEN_BUDGET,
    ) -> None:
        """`token_budget`: tokens of a batch, padding included; a GPU wants more of them than two cores."""
        self._token_budget = token_budget
        self.classifier = TokenClassifier.load(
            str(folder), Placement(device, dtype, threads), windows=Windows(token_budget=token_budget)
        )

    def run(self, texts: Sequence[str]) -> None:
        asyncio.run(self._run(texts))

    async def _run(self, texts: Sequence[str]) -> None:
        service = NeuralService(
            self.classifier.network, token_budget=self._token_budget, max_waiting_tokens=10**6
        )
        await asyncio.gather(*(self._one(service, text) for text in texts))
        await service.close()

    async def _one(self, service: NeuralService, text: str) -> None:
        budget = int(len(self.classifier.tokenizer.tokens(text)) * RATE)
        await service.run(self.classifier.keep_words_job("", text, [(0, len(text))], [budget]))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES), help="layers by width")
    parser.add_argument("--rounds", type=int, default=3, help="of each contestant, in turn")
    parser.add_argument("--threads", type=int, default=2, help="of torch")
    parser.add_argument("--json", type=Path, help="write the results here too")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    results: dict[str, Any] = {"rows": []}
    for shape in options.shapes:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "bert-base-multilingual-cased-random"
            layers, width = SHAPES[shape]
            make_checkpoint(path, "bert", layers=layers, width=width, spread=1.0)
            rows = compare(shape, path, options.rounds, options.threads)
        results["rows"] += [asdict(row) for row in rows]
        # After each shape: the larger ones take minutes.
        print(as_markdown({"rows": [asdict(row) for row in rows]}), flush=True)
        if options.json:
            options.json.write_text(json.dumps(results, indent=2))
    return 0


def compare(shape: str, folder: Path, rounds: int, threads: int) -> list[Row]:
    original = load_original(folder)
    contestants = {dtype: Ours(folder, dtype, threads) for dtype in ("float32", "bfloat16")}
    count = contestants["float32"].classifier.tokenizer.tokens
    inputs = {
        "short": [text_of(SHORT_TOKENS, at, lambda text: len(count(text))) for at in range(SHORT_INPUTS)],
        "long": [text_of(LONG_TOKENS, 0, lambda text: len(count(text)))],
    }
    rows = []
    for name, texts in inputs.items():
        runs: dict[str, Callable[[], None]] = {"original": lambda texts=texts: run_original(original, texts)}  # type: ignore[misc]
        for dtype, ours in contestants.items():
            runs[dtype] = lambda ours=ours, texts=texts: ours.run(texts)  # type: ignore[misc]
        timings = alternate(runs, rounds)
        rows += [row(shape, name, dtype, timings) for dtype in contestants]
    return rows


def load_original(folder: Path, *, device: str = "cpu") -> Any:
    import tiktoken
    from llmlingua import PromptCompressor

    # The real one is downloaded.
    vars(tiktoken)["encoding_for_model"] = lambda _: FakeEncoding()
    return PromptCompressor(
        str(folder), device_map=device, use_llmlingua2=True, model_config={"trust_remote_code": False}
    )


def run_original(original: Any, texts: Sequence[str]) -> None:
    """One after the other: it does not batch across requests."""
    for text in texts:
        original.compress_prompt_llmlingua2([text], rate=RATE)


def text_of(tokens: int, seed: int, count: Callable[[str], int]) -> str:
    """Prose of about that many tokens, another for each seed."""
    words = " ".join(TEXTS[:2]).split()
    words = words[seed % len(words) :] + words[: seed % len(words)]
    per_word = count(" ".join(words)) / len(words)
    wanted = round(tokens / per_word)
    return " ".join((words * (wanted // len(words) + 1))[:wanted])


def alternate(runs: dict[str, Callable[[], None]], rounds: int) -> dict[str, list[Timing]]:
    """Each in turn, so that what else the machine does falls on all; the first round only warms up."""
    timings: dict[str, list[Timing]] = {name: [] for name in runs}
    for number in range(rounds + 1):
        for name, run in runs.items():
            wall, cpu = time.perf_counter(), time.process_time()
            run()
            if number:
                timings[name].append(Timing(time.perf_counter() - wall, time.process_time() - cpu))
            print(".", end="", file=sys.stderr, flush=True)
    return timings


def row(shape: str, name: str, dtype: str, timings: dict[str, list[Timing]]) -> Row:
    def median(who: str, of: str) -> float:
        return float(statistics.median(getattr(timing, of) for timing in timings[who]))

    wall, theirs = median(dtype, "wall_s"), median("original", "wall_s")
    cpu_ratio = median("original", "cpu_s") / median(dtype, "cpu_s")
    return Row(shape, name, dtype, theirs, wall, theirs / wall, cpu_ratio, TARGETS[dtype, name])


def as_markdown(results: dict[str, Any]) -> str:
    lines = [
        f"\n{SHORT_INPUTS} inputs of {SHORT_TOKENS} tokens at once (short), one of {LONG_TOKENS} (long): how many",
        "times faster than PromptCompressor in fp32, medians.\n",
        "| shape | input | dtype | original s | ours s | ratio | ratio by CPU time | target |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r['shape']} | {r['input']} | {r['dtype']} | {r['original_wall_s']:.2f} | {r['wall_s']:.2f} "
        f"| {r['wall_ratio']:.2f} | {r['cpu_ratio']:.2f} | {r['target']} |"
        for r in results["rows"]
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
