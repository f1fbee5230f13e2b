"""What the check's part `service` runs, and what it makes of the comparison."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from benchmarks.gpu_check.checkpoint import CONTEXT, SHAPES
from benchmarks.gpu_check.engine import ALIKE, VARIANTS, prompts
from benchmarks.gpu_check.engine import LOADS as ENGINE_LOADS
from benchmarks.gpu_check.service import ENGINES, LOADS, PITH, configuration, rows
from benchmarks.load.sample import Figures, Run, Sample
from benchmarks.overhead.__main__ import arguments, scenarios
from benchmarks.overhead.engine import read_engine
from benchmarks.overhead.rounds import Comparison
from benchmarks.overhead.sides import BARE
from serve.config.capacity.memory import cache_layout
from serve.config.engine import EngineSettings
from serve.config.settings import load_settings

DEVICES = ("cuda", "cpu")


@pytest.mark.parametrize("device", DEVICES)
def test_both_sides_run_one_model_with_the_same_arguments(device: str, tmp_path: Path) -> None:
    file = tmp_path / "pith.yaml"
    file.write_text(yaml.safe_dump(configuration(tmp_path / "random", device)))
    (model,) = load_settings(file).models
    assert model.accelerator.kind == ("gpu" if device == "cuda" else "cpu")
    bare = read_engine(file, tmp_path)
    assert bare.arguments == {
        **model.engine.vllm_arguments(),
        "max_model_len": CONTEXT,
        "load_format": "safetensors",
    }
    assert bare.environment == model.environment
    assert ("TORCH_COMPILE_DISABLE" in model.environment) == (device == "cpu")


def test_two_engines_have_room_on_one_gpu_and_take_all_clients() -> None:
    assert 2 * ENGINES["cuda"]["gpu_memory_utilization"] < 0.9
    clients = arguments([*LOADS["cuda"], "--sides", "bare,pith"]).clients
    assert clients == (16, 64) and ENGINES["cuda"]["max_num_seqs"] == max(clients)


def run(requests: int, ms: float, ttft_ms: float) -> Run:
    return Run(2.0, tuple(Sample(0.0, ms, Figures(16), (ttft_ms, ms)) for _ in range(requests)))


def test_a_row_has_medians_and_the_ratio_round_by_round() -> None:
    given = scenarios(arguments(["--clients", "16"]))
    bare = [run(10, 5.0, 1.0), run(20, 6.0, 2.0), run(40, 7.0, 3.0)]
    pith = [run(9, 6.0, 2.0), run(19, 8.0, 3.0), run(20, 9.0, 4.0)]
    both = {BARE: dict.fromkeys(given, bare), PITH: dict.fromkeys(given, pith)}
    whole, stream = rows(Comparison(both), given)
    assert whole == {
        "load": "JSON, 16 tokens, 16 clients",
        "bare vLLM: requests/s": 10.0,
        "bare vLLM: p50 ms": 6.0,
        "pith: requests/s": 9.5,
        "pith: p50 ms": 8.0,
        "pith / bare": 0.9,
    }
    assert (stream["bare vLLM: TTFT ms"], stream["pith: TTFT ms"]) == (2.0, 3.0)


def test_a_token_of_the_checkpoint_takes_what_sizing_says() -> None:
    for shape in SHAPES.values():
        fields = {
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.cached_heads,
            "head_dim": shape.head_width,
        }
        layout = cache_layout(fields, EngineSettings(dtype="bfloat16"), kind="gpu")
        assert layout.bytes_per_token == shape.cache_bytes


@pytest.mark.parametrize("device", DEVICES)
def test_every_prompt_fits_and_shared_ones_begin_alike(device: str) -> None:
    load = ENGINE_LOADS[device]
    assert load.prompt + load.reply <= CONTEXT and ALIKE[device]["dtype"] in ("bfloat16", "float32")
    for variant in VARIANTS:
        made = prompts(variant, load)
        first, second = (next(made)["prompt_token_ids"] for _ in range(2))
        assert len(first) == len(second) == load.prompt and first != second
        assert (first[: -load.own] == second[: -load.own]) == variant.shared
