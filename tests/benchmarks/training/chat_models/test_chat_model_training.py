"""The script refuses what it cannot use, in one line, before it trains anything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.training.chat_models.__main__ import main, write_generation_config
from benchmarks.training.chat_models.recipes import RECIPES
from models.embedded.install import ARTEFACTS, EMBEDDED_MODELS


def test_a_missing_data_folder_is_named_with_exit_code_2(tmp_path: Path, capsys) -> None:
    assert main(["--out", str(tmp_path / "out"), "--train-data", str(tmp_path / "nowhere")]) == 2
    message = capsys.readouterr().err
    assert "nowhere" in message
    assert "--train-data" in message
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("arguments", [["--minutes", "0"], ["--minutes", "soon"], ["--model", "pith-huge"]])
def test_a_bad_argument_is_refused(arguments: list[str], capsys) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["--out", "never-made", *arguments])
    assert exit_.value.code == 2
    assert arguments[1] in capsys.readouterr().err


def test_every_embedded_model_has_a_recipe_of_its_context_length() -> None:
    configs = {each: ARTEFACTS / "checkpoints" / each / "config.json" for each in EMBEDDED_MODELS}
    lengths = {
        each: json.loads(file.read_text())["max_position_embeddings"] for each, file in configs.items()
    }
    assert {model_id: recipe.context_length for model_id, recipe in RECIPES.items()} == lengths


def test_sampling_defaults_hold_the_ends_and_the_penalty(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"eos_token_id": 2, "pad_token_id": 0}')
    write_generation_config(RECIPES["pith-mini"], tmp_path)
    written = json.loads((tmp_path / "generation_config.json").read_text())
    assert written["eos_token_id"] == [2, 0]
    assert written["repetition_penalty"] == RECIPES["pith-mini"].repetition_penalty
