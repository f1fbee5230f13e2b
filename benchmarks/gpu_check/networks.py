"""The token classifier and the encoder, and `llmlingua.PromptCompressor` on the classifier's checkpoint; random
weights of a base network's shape, so quality is not told."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.measured import Attempts, arguments, median_s, tell
from benchmarks.sample_checkpoints import config_of, make_checkpoint, train_tokenizer
from benchmarks.token_classifier import Ours, load_original, run_original, text_of
from compression.neural.batching import Windows
from compression.neural.encoder import Encoder
from compression.neural.networks import Dtype, Placement

DTYPES: tuple[Dtype, ...] = ("float32", "bfloat16")
# Layers by width, inputs at once, tokens of each, rounds: of a GPU, and of a trial on a CPU.
SIZES: dict[str, tuple[int, int, tuple[int, ...], int, int]] = {
    "cuda": (12, 768, (1, 8, 64, 256), 400, 5),
    "cpu": (2, 48, (1, 2), 40, 1),
}
# Tokens of a batch: with few, a GPU's time is that of starting its kernels.
TOKEN_BUDGETS = {"cuda": tuple(2**power for power in range(10, 17)), "cpu": (64, 128)}
QUERY = "What did the committee decide?"
# In the place of figures, of a batch that the GPU has no memory for.
TOO_MUCH = "not enough memory"


def main() -> None:
    options = arguments("classifier", "llmlingua", "encoder")
    attempts = Attempts()
    {"classifier": classifier, "llmlingua": llmlingua, "encoder": encoder}[options.kind](options, attempts)
    attempts.conclude()


def sweep(device: str) -> Iterator[tuple[int, Dtype]]:
    """Both precisions of a budget before the next: a part that its limit ends has pairs to compare."""
    for budget in TOKEN_BUDGETS[device]:
        for dtype in DTYPES:
            yield budget, dtype


def filling(device: str, budget: int) -> tuple[int, ...]:
    """Inputs at once that need more than half of such a batch: fewer are batched as with half the budget."""
    _, _, batches, tokens, _ = SIZES[device]
    smallest = budget == TOKEN_BUDGETS[device][0]
    return tuple(inputs for inputs in batches if smallest or inputs * tokens > budget // 2)


def classifier(options: argparse.Namespace, attempts: Attempts) -> None:
    folder = checkpoint(options)
    for budget, dtype in sweep(options.device):
        with attempts.at(f"{dtype}, {budget} tokens a batch"):
            ours = Ours(folder, dtype, None, device=options.device, token_budget=budget)
            at_once = filling(options.device, budget)
            each(options, dtype, counter(ours.classifier.tokenizer), ours.run, at_once, batch_tokens=budget)


def llmlingua(options: argparse.Namespace, attempts: Attempts) -> None:
    """In its own precision, float32; it has no batches over requests."""
    with attempts.at("float32"):
        folder = checkpoint(options)
        original = load_original(folder, device=options.device)
        count = counter(Ours(folder, "float32", None).classifier.tokenizer)
        each(options, "float32", count, lambda texts: run_original(original, texts), SIZES[options.device][2])


def encoder(options: argparse.Namespace, attempts: Attempts) -> None:
    """A cross-encoder, which sees each text with the query."""
    from transformers import AutoModelForSequenceClassification

    layers, width, *_ = SIZES[options.device]
    tokenizer = train_tokenizer("bert")
    config = config_of("bert", tokenizer, layers, width)
    folder = options.folder / "encoder"
    AutoModelForSequenceClassification.from_config(config).save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    for budget, dtype in sweep(options.device):
        with attempts.at(f"{dtype}, {budget} tokens a batch"):
            placed = Placement(options.device, dtype)
            found = Encoder.load(str(folder), placed, windows=Windows(token_budget=budget))
            at_once, run = filling(options.device, budget), partial(found.compare, QUERY)
            each(options, dtype, counter(found.tokenizer), run, at_once, batch_tokens=budget)


def counter(tokenizer: Any) -> Callable[[str], int]:
    return lambda text: len(tokenizer.tokens(text))


def checkpoint(options: argparse.Namespace) -> Path:
    layers, width, *_ = SIZES[options.device]
    folder = options.folder / "bert-base-multilingual-cased-random"
    return make_checkpoint(folder, "bert", layers=layers, width=width, spread=1.0)


def each(
    options: argparse.Namespace,
    dtype: str,
    count: Callable[[str], int],
    run: Callable[[Sequence[str]], object],
    at_once: Sequence[int],
    **shown: int,
) -> None:
    """A row for each number of inputs at once."""
    import torch

    tokens = SIZES[options.device][3]
    for inputs in at_once:
        texts = [text_of(tokens, at, count) for at in range(inputs)]
        total = sum(map(count, texts))
        known = {"dtype": dtype, **shown, "inputs": inputs, "tokens": total}
        try:
            tell(options, **known, **figures(options.device, partial(run, texts), total))
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            tell(options, **known, tokens_per_s=TOO_MUCH)


def figures(device: str, work: Callable[[], object], tokens: int) -> dict[str, float]:
    import torch

    on_gpu, rounds = device == "cuda", SIZES[device][-1]
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    took_s = median_s(work, rounds=rounds, done=torch.cuda.synchronize if on_gpu else int)
    found = {"tokens_per_s": tokens / took_s, "latency_ms": took_s * 1000}
    return found | ({"memory_mb": torch.cuda.max_memory_allocated() / 1e6} if on_gpu else {})


if __name__ == "__main__":
    main()
