"""vLLM's own class says of `engine.args` what it takes: names, types and its help."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from serve.config.engine import EngineSettings
from serve.config.settings import load_settings
from tests.command_blocks import fences
from tests.pretend_gpu.engine_configurations import made_of

pytestmark = [
    # vLLM's own, and those of what it imports.
    pytest.mark.filterwarnings("ignore"),
]
ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/engine-features.md").read_text(encoding="utf-8")


def said_of(given: dict[str, Any]) -> list[str]:
    from models.vllm.arguments import problems_of

    return list(problems_of(given))


def models_of_the_page() -> list[dict[str, Any]]:
    """The first model of each block."""
    documents = [yaml.safe_load("\n".join(body)) for _, language, body in fences(PAGE) if language == "yaml"]
    return [document["models"][0] for document in documents]


def test_every_block_of_the_page_is_taken() -> None:
    given = [model["engine"]["args"] for model in models_of_the_page() if "args" in model["engine"]]
    assert [said_of(each) for each in given] == [[] for _ in given]
    names = {name for each in given for name in each}
    assert {
        "kv_transfer_config",
        "enable_expert_parallel",
        "speculative_config",
        "kv_offloading_size",
    } <= names


def test_on_a_pretend_gpu_vllm_makes_of_every_block_what_the_page_says(tmp_path: Path) -> None:
    on_gpus = [model for model in models_of_the_page() if model.get("accelerator", {}).get("kind") == "gpu"]
    found = made_of([EngineSettings(**model["engine"]).vllm_arguments() for model in on_gpus], tmp_path)
    said = {
        model["blurb"].split(",")[0].rstrip("."): each for model, each in zip(on_gpus, found, strict=True)
    }
    offload = {"connector": "OffloadingConnector", "role": "kv_both"}
    assert said["Long conversations that come back"].items() >= offload.items()
    again = said["What is loaded back in vain is computed again"]
    assert again.items() >= {**offload, "policy": "recompute"}.items()
    # It is in no lock.
    assert said.pop("What many engines of a machine have computed") == {
        "refused": "No module named 'lmcache'"
    }
    layers = said["Layers over two machines"]
    assert layers.items() >= {"workers": 8, "expert_parallel": True}.items()
    assert said["Weights and cache of 8 bits"]["quantization"] == "fp8"
    assert not [each["refused"] for each in said.values() if "refused" in each]


@pytest.mark.parametrize("file", ["configs/embedded.yaml", "deploy/pith.yaml"])
def test_what_is_shipped_is_taken(file: str) -> None:
    for model in load_settings(ROOT / file).models:
        assert model.engine.args and said_of(model.engine.args) == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"enforce_egaer": True},
            "enforce_egaer: vLLM 0.29.0 has no such argument; did you mean enforce_eager?",
        ),
        ({"seed": "1"}, "seed: Input should be a valid integer (vLLM: Random seed for reproducibility)"),
        ({"async_scheduling": 1}, "async_scheduling: Input should be a valid boolean"),
        ({"quantization": "fp9"}, "quantization: Input should be 'awq', "),
        ({"kv_transfer_config": {"zz": 1}}, "kv_transfer_config.zz: Unexpected keyword argument"),
        ({"kv_transfer_config": {"kv_connector": "X"}}, "kv_transfer_config: Please specify kv_role"),
        (
            {"structured_outputs_config": {"backend": "x"}},
            "structured_outputs_config.backend: Input should be",
        ),
        ({"compilation_config": 3}, "compilation_config: Input should be an object"),
        (
            {"speculative_config": {"methd": "ngram"}},
            "speculative_config.methd: vLLM 0.29.0 has no such argument",
        ),
    ],
)
def test_what_it_does_not_take_is_said_with_its_path(given: dict[str, Any], words: str) -> None:
    (said,) = said_of(given)
    assert said.startswith(f"engine.args.{words}")


def test_an_engine_is_not_started_with_what_it_does_not_take() -> None:
    from models.vllm.arguments import check

    check({"seed": 1})
    with pytest.raises(ValueError, match=r"engine\.args\.seed: .*; engine\.args\.sed: "):
        check({"seed": "1", "sed": 1})
