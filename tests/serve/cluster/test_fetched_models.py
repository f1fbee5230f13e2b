"""A chat model whose weights cannot be had is left out with a sentence, and the next one takes its place."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.training.chat_models.adapter import make_adapter
from models.adapters import WEIGHTS, AdapterSource, whole_folders
from serve.cluster.fetched_models import without_missing
from serve.cluster.lineup import checkpoints_of, require_any
from serve.cluster.progress import StartError
from serve.config.settings import Settings
from tests.integration.running import ROOT, adapter_entry
from tests.serve.served import settings_document


class Said(list[str]):
    """Everything that an operator is told."""

    def begin(self, step: str) -> None:
        self.append(step)

    def say(self, line: str) -> None:
        self.append(line)


@pytest.fixture
def document(tmp_path: Path) -> dict[str, Any]:
    """The real model before the tiny ones, of which none is kept up; and nowhere to put its weights."""
    (tmp_path / "checkpoints").write_text("a file where the folder should be")
    given: dict[str, Any] = yaml.safe_load((ROOT / "configs/tiny.yaml").read_text())
    first = given["models"][0]
    first["replicas"] = {"min": 0, "max": 1}
    real = first | {"id": "real", "checkpoint": "embedded:smollm2-135m", "replicas": {"min": 1, "max": 2}}
    return given | {"state_dir": str(tmp_path), "models": [real, *given["models"]]}


def test_the_next_model_is_the_default_then_and_kept_up_as_the_first_was(document: dict[str, Any]) -> None:
    said = Said()
    left = without_missing(Settings.model_validate(document), said)
    assert [model.id for model in left.models] == ["pith-mini", "pith-small", "pith-base", "pith-wide"]
    assert (left.models[0].replicas.min, left.models[0].replicas.max) == (1, 2)
    assert said[-2].startswith("warning: not served, since its weights are not here: real: ")
    assert said[-2].endswith("checkpoints: File exists") and said[-1].startswith(
        "the default model is pith-mini; "
    )


def test_its_adapters_are_left_out_with_it(document: dict[str, Any]) -> None:
    loud = {name: document["models"][0][name] for name in ("name", "blurb", "price")}
    loud |= {"id": "loud", "adapter": {"of": "real", "source": "./loud"}}
    document["models"].insert(1, loud)
    left = without_missing(Settings.model_validate(document), Said())
    assert left.models[0].id == "pith-mini"


def test_the_next_model_that_is_whole_is_the_default_and_not_an_adapter_before_it(
    document: dict[str, Any],
) -> None:
    loud = {name: document["models"][0][name] for name in ("name", "blurb", "price")}
    loud |= {"id": "loud", "adapter": {"of": "pith-mini", "source": "./loud"}}
    document["models"].insert(1, loud)
    left = without_missing(Settings.model_validate(document), Said())
    assert [model.id for model in left.models[:2]] == ["pith-mini", "loud"]


def test_a_reload_fetches_nothing(document: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "checkpoints").unlink()
    said = Said()
    left = without_missing(Settings.model_validate(document), said, may_fetch=False)
    assert left.models[0].id == "pith-mini" and not (tmp_path / "checkpoints").exists()
    assert "a start of the server fetches it" in said[0]


def test_where_it_is_the_only_model_the_start_says_why(document: dict[str, Any]) -> None:
    settings = Settings.model_validate(document | {"models": document["models"][:1]})
    assert without_missing(settings, Said()) is settings
    with pytest.raises(StartError, match=r"^real: .*checkpoints: File exists"):
        checkpoints_of(settings, Said())


def test_a_configuration_without_it_is_left_as_it_is(document: dict[str, Any]) -> None:
    settings, said = Settings.model_validate(document | {"models": document["models"][1:]}), Said()
    assert without_missing(settings, said) is settings and not said


def test_a_broken_adapter_ends_no_start_and_is_left_out_until_it_is_whole(tmp_path: Path) -> None:
    whole, cut = make_adapter(tmp_path / "whole"), make_adapter(tmp_path / "cut")
    os.truncate(cut / WEIGHTS, 100)
    given = settings_document(tmp_path, state_dir=str(tmp_path))
    given["models"] = [given["models"][0] | {"checkpoint": "embedded:pith-mini"}]
    given["models"] += [
        {**adapter_entry(folder), "id": folder.name, "adapter": {"of": "alpha", "source": str(folder)}}
        for folder in (whole, cut)
    ]
    settings, said = Settings.model_validate(given), Said()
    checkpoint = checkpoints_of(settings, said)["alpha"]
    (warning,) = [line for line in said if "WARNING" in line]
    assert "cut is away" in warning and str(cut / WEIGHTS) in warning
    sources = [AdapterSource(folder.name, str(folder)) for folder in (whole, cut)]
    base = Path(checkpoint)
    assert whole_folders(sources, max_rank=16, base=base) == {"whole": whole}
    make_adapter(cut)
    assert whole_folders(sources, max_rank=16, base=base) == {"whole": whole, "cut": cut}


def test_broken_checkpoints_end_a_start_that_has_no_model_of_another_kind(tmp_path: Path) -> None:
    """And no reload: the engines that run do not read them."""
    given = settings_document(tmp_path)
    for model in given["models"]:
        model |= {"engine": {"kind": "fake"}, "checkpoint": str(tmp_path / "half")}
    alone = Settings.model_validate(given)
    checkpoints = checkpoints_of(alone, Said())
    with pytest.raises(StartError, match=r"alpha: .*half.*; beta: "):
        require_any(alone, checkpoints)
    lexical = {"id": "lexical", "name": "Lexical", "blurb": "For tests.", "kind": "lexical"}
    require_any(Settings.model_validate(given | {"compression": {"models": [lexical]}}), checkpoints)
