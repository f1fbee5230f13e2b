"""The prices that a server is started with: what a block may cost to compress decides whether it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

# The longest trace has 15,913 tokens. The embedded weights were trained on fewer, but what they say is not judged.
CONTEXT_LENGTH = 16_384


@dataclass(frozen=True, slots=True)
class Prices:
    """US dollars: per million tokens of input, of input found in the cache, of output and of text to compress; and
    the least that a chat request costs."""

    words: str
    input: str = "1.00"
    cached_input: str = "0.10"
    output: str = "4.00"
    minimum: str = "0.00001"
    compression: str = "0"


SCENARIOS: Mapping[str, Prices] = {
    "free": Prices("compression is free"),
    "priced": Prices("compression costs 0.05 a million tokens: it pays even for cached tokens", compression="0.05"),
    "dear": Prices("compression costs 0.20 a million tokens, twice what cached input does", compression="0.20"),
    "minimum": Prices(
        "compression costs 0.05 and a request at least 0.004, the price of 4,000 tokens", minimum="0.004",
        compression="0.05",
    ),
}  # fmt: skip


def config_with(config: Path, folder: Path, name: str, *, block_size: int | None) -> tuple[Path, str]:
    """A copy with its first model alone, at these prices and with a context that takes every trace; and its id."""
    prices, settings = SCENARIOS[name], yaml.safe_load(config.read_text(encoding="utf-8"))
    model, compressor = settings["models"][0], settings["compression"]["models"][0]
    model["context_length"] = CONTEXT_LENGTH
    model["price"] = {
        "input_usd_per_mtok": prices.input, "cached_input_usd_per_mtok": prices.cached_input,
        "output_usd_per_mtok": prices.output, "minimum_request_usd": prices.minimum,
    }  # fmt: skip
    given = model["engine"].get("args", {})
    model["engine"]["args"] = {**given, "hf_overrides": {"max_position_embeddings": CONTEXT_LENGTH}}
    if block_size:
        model["engine"]["block_size"] = block_size
    compressor["price_usd_per_mtok_input"] = prices.compression
    settings["models"], settings["compression"]["models"] = [model], [compressor]
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return path, str(model["id"])
