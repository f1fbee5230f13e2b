"""Which engine a configuration names: vLLM unless it says otherwise, never the fake by accident."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from models.engine_kinds import SPIN_VARIABLE
from serve.cluster.lineup import warn_of_fake_engines
from serve.cluster.progress import Progress
from serve.config.chat_models import ModelSettings
from serve.config.engine import EngineSettings
from serve.config.settings import Settings, load_settings

CONFIGS = sorted((Path(__file__).parents[3] / "configs").glob("*.yaml"))


def test_vllm_is_the_engine_of_a_model_that_names_none() -> None:
    assert EngineSettings().kind == "vllm"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"kind": "sglang"}, "sglang"),
        ({"options": {"dtype": "auto"}}, "options"),
        ({"kind": "fake", "max_num_seqs": 4}, "max_num_seqs"),
    ],
)
def test_what_does_not_fit_the_kind_is_refused_by_name(given: dict[str, Any], named: str) -> None:
    with pytest.raises(ValidationError, match=named):
        EngineSettings(**given)


@pytest.mark.parametrize(
    ("engine", "accelerator", "spins"),
    [({}, "cpu", "0.0"), ({}, "gpu", None), ({"spin_s": 0.5}, "cpu", "0.5"), ({"spin_s": 0}, "gpu", "0.0")],
)
def test_engines_on_cpus_do_not_spin_unless_they_are_told_to(
    engine: dict[str, Any], accelerator: str, spins: str | None
) -> None:
    fields = {**yaml.safe_load(CONFIGS[0].read_text())["models"][0], "accelerator": {"kind": accelerator}}
    model = ModelSettings.model_validate(fields | {"engine": engine, "capabilities": {}})
    assert model.engine_environment().get(SPIN_VARIABLE) == spins
    assert model.engine.vllm_arguments() == {}


def test_only_vllms_own_arguments_reach_vllm() -> None:
    assert EngineSettings(dtype="auto", max_num_seqs=4).vllm_arguments() == {
        "dtype": "auto",
        "max_num_seqs": 4,
    }


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_no_shipped_configuration_names_the_fake(path: Path) -> None:
    assert {model.engine.kind for model in load_settings(path).models} == {"vllm"}


def test_the_start_names_each_model_whose_engine_computes_nothing() -> None:
    given = yaml.safe_load(CONFIGS[0].read_text())
    given["models"][0]["engine"] = {"kind": "fake"}
    out = StringIO()
    warn_of_fake_engines(Settings(**given).models, Progress(out))
    (line,) = out.getvalue().splitlines()
    assert "WARNING" in line and given["models"][0]["id"] in line and "fake" in line
