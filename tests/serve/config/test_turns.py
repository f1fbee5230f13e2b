"""Models that take turns on the same GPUs: what is refused, by its path, and what fits a GPU and the machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from models.engine_kinds import WORKER_SHARE_VARIABLE
from serve.cluster.reload_plan import plan_of
from serve.config.capacity.fit import check_fit
from serve.config.paths import ConfigError
from serve.config.settings import Settings, load_settings
from serve.config.values import parse_node
from serve.fairness.model_turns import TurnTerms
from tests.serve.served import model_document, settings_document

SIZE = {"weights_gb": 30, "kv_kb_per_token": 100}


def on_gpu(model_id: str, **fields: Any) -> dict[str, Any]:
    given = {
        "accelerator": {"kind": "gpu"},
        "size": SIZE,
        "engine": {"gpu_memory_utilization": 0.9},
        **fields,
    }
    return model_document(model_id, **given)


def document(folder: Path, *models: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Two models that take turns, and one that has a GPU by itself."""
    listed = list(models) or [on_gpu("a"), on_gpu("b"), on_gpu("alone")]
    return {**settings_document(folder, models=listed), "turns": [{"models": ["a", "b"]}], **fields}


def settings(folder: Path, *models: dict[str, Any], **fields: Any) -> Settings:
    return Settings.model_validate(document(folder, *models, **fields))


def refusal(folder: Path, *models: dict[str, Any], **fields: Any) -> str:
    path = folder / "pith.yaml"
    path.write_text(yaml.safe_dump(document(folder, *models, **fields)))
    with pytest.raises(ConfigError) as caught:
        load_settings(path)
    return str(caught.value)


def test_those_that_take_turns_are_one_application_and_each_asks_ray_for_a_part_of_its_gpus(
    tmp_path: Path,
) -> None:
    models = [on_gpu("first"), on_gpu("a"), on_gpu("b"), on_gpu("c")]
    found = settings(tmp_path, *models, turns=[{"models": ["c", "a", "b"], "min_stay_s": 5}])
    assert [group.name for group in found.engine_groups] == ["first", "c+a+b"]
    alone, group = found.engine_groups
    assert group.turns is not None and group.turns.terms == TurnTerms(5, 60, 10)
    assert group.environment()[WORKER_SHARE_VARIABLE] == "0.3333"
    assert WORKER_SHARE_VARIABLE not in alone.environment()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"accelerator": {"kind": "cpu"}}, "models.b.accelerator.kind: must be gpu, since vLLM gives up no"),
        ({"accelerator": {"kind": "gpu", "type": "L4"}}, "models.b.accelerator: must be that of a"),
        ({"replicas": {"min": 0}}, "models.b.replicas: min and max must be 1"),
        ({"environment": {"A": "1"}}, "models.b.environment: must be that of a, with which it shares GPUs"),
        ({"engine": {"tensor_parallel_size": 2}}, "models.b.engine.tensor_parallel_size: must be that of a"),
        (
            {"engine": {"max_loras": 2}},
            "models.b.engine.max_loras: a model that takes turns (turns.0) has no",
        ),
        ({"engine": {"args": {"enable_sleep_mode": True}}}, "enable_sleep_mode: pith sets it from turns"),
        (
            {
                "accelerator": {"kind": "gpu", "share": 0.5},
                "engine": {"kv_cache_memory_bytes": 2**30, "gpu_memory_utilization": 0.5},
            },
            "models.b.accelerator.share: must be 1: the one that is awake has the whole GPU (turns.0)",
        ),
    ],
)
def test_what_cannot_work_in_turns_is_refused_with_the_path_of_its_key(
    tmp_path: Path, fields: dict[str, Any], said: str
) -> None:
    assert said in refusal(tmp_path, on_gpu("a"), on_gpu("b", **fields))


def test_an_adapter_of_a_model_that_takes_turns_is_refused(tmp_path: Path) -> None:
    adapter = model_document("adapter", adapter={"of": "b", "source": "org/adapter"})
    for key in ("checkpoint", "context_length"):
        del adapter[key]
    assert "models.b.engine.max_loras" in refusal(tmp_path, on_gpu("a"), on_gpu("b"), adapter)


@pytest.mark.parametrize(
    ("turns", "said"),
    [
        ([{"models": ["a", "none"]}], "turns.0.models: 'none' is no chat model with engines of its own"),
        ([{"models": ["a", "b"]}, {"models": ["alone", "b"]}], "turns.1.models: 'b' takes turns already"),
        ([{"models": ["a", "a"]}], "turns.0.models: 'a' takes turns already"),
        ([{"models": ["a"]}], "turns.0.models: List should have at least 2 items"),
        (
            [{"models": ["a", "b"], "longest_wait_s": 170}],
            "turns.0: a request may wait for 190 s, even if swaps took no time, and server.start_wait_s gives it up "
            "after 180 s",
        ),
    ],
)
def test_turns_that_cannot_be_taken_are_refused(
    tmp_path: Path, turns: list[dict[str, Any]], said: str
) -> None:
    assert said in refusal(tmp_path, turns=turns)


def test_a_gpu_holds_the_one_that_is_awake_and_the_rest_of_those_that_sleep(tmp_path: Path) -> None:
    (group, alone, *_) = check_fit(settings(tmp_path), [parse_node("2xH100-80GB,cpu:16-200GB")])
    assert (group.application, group.where, alone.where) == ("model:a+b", "GPU 0", "GPU 1")
    # 0.9 of 80 GB, and 2 of the other.
    assert (
        group.fits and "74.0 GB of each GPU at most" in group.memory and "60.0 GB of weights" in group.memory
    )


@pytest.mark.parametrize(
    ("size", "node", "trouble"),
    [
        ({**SIZE, "asleep_gb": 4}, "2xH100-80GB,cpu:16-200GB", "GPU 0: 76.0 GB with what is there already"),
        (SIZE, "2xH100-80GB,cpu:16-60GB", "memory: 61.5 GB with what is there already, of 60"),
        (
            {**SIZE, "kv_kb_per_token": 20_000},
            "2xH100-80GB,cpu:16-200GB",
            "a: its KV cache holds 1,900 tokens",
        ),
    ],
)
def test_what_those_that_take_turns_lack_is_said(
    tmp_path: Path, size: dict[str, Any], node: str, trouble: str
) -> None:
    found = settings(tmp_path, on_gpu("a", size=size), on_gpu("b", size=size))
    assert trouble in check_fit(found, [parse_node(node)])[0].trouble


def test_other_turns_start_those_models_anew_and_no_other(tmp_path: Path) -> None:
    before = settings(tmp_path)
    longer = settings(tmp_path, turns=[{"models": ["a", "b"], "min_stay_s": 20}])
    assert plan_of(before, longer, code="none").started == ("model:a+b",)
    parted = plan_of(before, settings(tmp_path, turns=[]), code="none")
    assert parted.started == ("model:a", "model:b") and parted.removed == ("model:a+b",)
