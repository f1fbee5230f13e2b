"""vLLM by itself through its AsyncLLM, on random weights of a real model's shape: by clients, and by feature. Each
engine has a process of its own, which is gone before the next one starts."""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.checkpoint import CONTEXT, SHAPES, made_apart
from benchmarks.gpu_check.measured import Attempts, arguments, tell
from benchmarks.training.chat_models.adapter import make_adapter

MIB_IN_MB = 2**20 / 1e6
VISIBLE = "CUDA_VISIBLE_DEVICES"
ENVIRONMENT = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
ALIKE: dict[str, dict[str, Any]] = {
    "cuda": {"dtype": "bfloat16", "gpu_memory_utilization": 0.85},
    "cpu": {
        "dtype": "float32",
        "enforce_eager": True,
        "distributed_executor_backend": "vllm.v1.executor.uniproc_executor.UniProcExecutor",
    },
}
N_GRAMS = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4, "prompt_lookup_min": 1}


@dataclass(frozen=True, slots=True)
class Variant:
    """An engine; `arguments` are vLLM's. `shared` prompts have the same beginning. One that `sleeps` does so a few
    times in the end."""

    feature: str
    arguments: dict[str, Any] = field(default_factory=dict)
    clients: tuple[int, ...] = (1, 64)
    adapter: bool = False
    shared: bool = False
    sleeps: bool = False


VARIANTS = (
    Variant("none", clients=(1, 16, 64)),
    Variant("prefix caching", {"enable_prefix_caching": True}, shared=True),
    Variant("a LoRA adapter", {"enable_lora": True, "max_loras": 1, "max_lora_rank": 8}, adapter=True),
    Variant("n-grams as guesses", {"speculative_config": N_GRAMS}),
    Variant("no CUDA graphs", {"enforce_eager": True}),
    Variant("sleep", {"enable_sleep_mode": True}, clients=(1,), sleeps=True),
)


@dataclass(frozen=True, slots=True)
class Load:
    """What each client sends, one request after another; of a shared prompt all but the last `own` tokens are alike."""

    prompt: int
    own: int
    reply: int
    requests: int
    clients: int


LOADS = {"cuda": Load(1024, 64, 128, 3, 64), "cpu": Load(160, 16, 8, 1, 2)}
# The first sleep also takes memory of the machine for the weights.
SLEEPS = 3
# Of a trial on a CPU, which is to take seconds.
TRIED = ("a LoRA adapter",)


def main() -> None:
    os.environ.update(ENVIRONMENT)
    options = arguments()
    folder = made_apart(options.folder / "random", options.device)
    make_adapter(options.folder / "adapter", base=folder)
    attempts = Attempts()
    for variant in VARIANTS:
        if options.device == "cuda" or variant.feature in TRIED:
            with attempts.at(variant.feature):
                asyncio.run(measure(variant, folder, options))
    attempts.conclude()


async def measure(variant: Variant, checkpoint: Path, options: argparse.Namespace) -> None:
    """A row for each number of clients."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.lora.request import LoRARequest
    from vllm.v1.engine.async_llm import AsyncLLM

    load, began = LOADS[options.device], time.perf_counter()
    engine = AsyncLLM.from_engine_args(
        AsyncEngineArgs(**engine_arguments(variant, checkpoint, options.device))
    )
    try:
        start_s = time.perf_counter() - began
        adapter = LoRARequest("adapter", 1, str(options.folder / "adapter")) if variant.adapter else None
        client = Client(engine, load, adapter, prompts(variant, load))
        await client.ask("warm-up")
        for clients in sorted({min(number, load.clients) for number in variant.clients}):
            found = await client.figures(clients)
            if variant.sleeps:
                found |= await slept(client, options)
            tell(
                options,
                feature=variant.feature,
                clients=clients,
                **found,
                start_s=start_s,
                **memory(engine, options),
            )
    finally:
        engine.shutdown()


def engine_arguments(variant: Variant, checkpoint: Path, device: str) -> dict[str, Any]:
    return {
        "model": str(checkpoint),
        "max_model_len": CONTEXT,
        "max_num_seqs": LOADS[device].clients,
        "enable_prefix_caching": False,
        "disable_log_stats": True,
        **ALIKE[device],
        **variant.arguments,
    }


def prompts(variant: Variant, load: Load) -> Iterator[dict[str, Any]]:
    """Tokens and no text: what is measured begins where a prompt has been read."""
    chance = random.Random(7)
    ids = range(256, 8192)
    start = chance.choices(ids, k=load.prompt - load.own) if variant.shared else []
    while True:
        yield {"prompt_token_ids": [*start, *chance.choices(ids, k=load.prompt - len(start))]}


@dataclass(slots=True)
class Client:
    """Asks an engine for replies of a fixed length, each with a prompt of its own."""

    engine: Any
    load: Load
    adapter: Any
    prompts: Iterator[dict[str, Any]]

    async def figures(self, clients: int) -> dict[str, float]:
        began = time.perf_counter()
        found = await asyncio.gather(*(self._in_turn(f"{clients}-{one}") for one in range(clients)))
        took_s = time.perf_counter() - began
        ttfts, rests = zip(*(times for of_one in found for times in of_one), strict=True)
        return {
            "tokens_per_s": clients * self.load.requests * self.load.reply / took_s,
            "ttft_ms": statistics.median(ttfts) * 1000,
            "ms_per_token": statistics.median(rests) / (self.load.reply - 1) * 1000,
        }

    async def _in_turn(self, name: str) -> list[tuple[float, float]]:
        return [await self.ask(f"{name}-{number}") for number in range(self.load.requests)]

    async def ask(self, name: str) -> tuple[float, float]:
        """Seconds to the first token, and from there to the last."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        sampling = SamplingParams(
            temperature=0, max_tokens=self.load.reply, ignore_eos=True, output_kind=RequestOutputKind.DELTA
        )
        began, first = time.perf_counter(), 0.0
        async for _ in self.engine.generate(next(self.prompts), sampling, name, lora_request=self.adapter):
            first = first or time.perf_counter()
        return first - began, time.perf_counter() - first


async def slept(client: Client, options: argparse.Namespace) -> dict[str, float]:
    """Medians of the seconds to fall asleep, of those to wake up, and of the first token after that; the first sleep by
    itself; and what is left on the GPU of one that sleeps."""
    asleep, awake, first_tokens, kept = [], [], [], {}
    for number in range(SLEEPS):
        began = time.perf_counter()
        await client.engine.sleep(level=1, mode="keep")
        asleep.append(time.perf_counter() - began)
        if options.device == "cuda" and (used := used_mb()) is not None:
            kept = {"asleep_mb": used}
        began = time.perf_counter()
        await client.engine.wake_up()
        awake.append(time.perf_counter() - began)
        first_tokens.append((await client.ask(f"woken-{number}"))[0])
    return {
        "first_sleep_s": asleep[0],
        "sleep_s": statistics.median(asleep),
        "wake_s": statistics.median(awake),
        "woken_ttft_ms": statistics.median(first_tokens) * 1000,
        **kept,
    }


def memory(engine: Any, options: argparse.Namespace) -> dict[str, float]:
    """Of the KV cache, and of all that is on the GPU besides: weights, activations, graphs, CUDA's context."""
    cache = engine.vllm_config.cache_config
    tokens = cache.num_gpu_blocks * cache.block_size
    found = {"cache_tokens": tokens}
    if options.device == "cuda":
        cache_mb, used = tokens * SHAPES[options.device].cache_bytes / 1e6, used_mb()
        found |= {"cache_mb": cache_mb} | ({} if used is None else {"other_mb": used - cache_mb})
    return found


def used_mb() -> float | None:
    """On the first GPU, by every process; None where nvidia-smi does not say."""
    gpu = os.environ.get(VISIBLE, "0").split(",")[0]
    query = ["nvidia-smi", "-i", gpu, "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return float(said.split()[0]) * MIB_IN_MB


if __name__ == "__main__":
    main()
