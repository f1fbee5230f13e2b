"""What is wrong with an adapter's files is said before an engine is given them, with the file's name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.training.chat_models.adapter import make_adapter
from models.adapters import CONFIG, WEIGHTS, AdapterSource, BrokenAdapter, read_adapter
from models.embedded.install import ARTEFACTS


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_adapter(tmp_path / "loud")


def refusal(folder: Path, *, max_rank: int = 16) -> str:
    with pytest.raises(BrokenAdapter) as caught:
        read_adapter("loud", folder, max_rank=max_rank, base=ARTEFACTS / "checkpoints/pith-mini")
    return str(caught.value)


def change(folder: Path, **fields: Any) -> Path:
    file = folder / CONFIG
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))
    return folder


def test_a_whole_adapter_has_its_rank_and_its_size(folder: Path) -> None:
    adapter = read_adapter("loud", folder, max_rank=16, base=None)
    assert (adapter.rank, adapter.weights_bytes) == (8, (folder / WEIGHTS).stat().st_size)


def test_an_adapter_is_made_the_same_each_time(folder: Path, tmp_path: Path) -> None:
    again = make_adapter(tmp_path / "again")
    assert (folder / WEIGHTS).read_bytes() == (again / WEIGHTS).read_bytes()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"peft_type": "IA3"}, "peft_type is 'IA3'"),
        ({"r": 0}, "r is missing"),
        ({"r": 8.5}, "r must be a positive integer"),
        ({"target_modules": []}, "target_modules is missing"),
        ({"use_dora": True}, "use_dora: true is not supported"),
        ({"bias": "all"}, 'bias: "all" is not supported'),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        # vLLM would scale every module alike, and answer wrongly.
        ({"alpha_pattern": {"q_proj": 4}}, "alpha_pattern"),
    ],
)
def test_what_vllm_does_not_serve_is_refused_with_its_field(
    folder: Path, fields: dict[str, Any], words: str
) -> None:
    said = refusal(change(folder, **fields))
    assert said.startswith(f"loud: {folder / CONFIG}: ") and words in said


def test_a_rank_above_what_the_engine_takes_names_the_key_to_raise(folder: Path) -> None:
    assert "raise engine.max_lora_rank (1)" in refusal(folder, max_rank=1)


def test_tensors_of_another_rank_are_named(folder: Path) -> None:
    said = refusal(change(folder, r=4))
    assert f"{folder / WEIGHTS}: base_model.model.model.layers.0" in said and "is of rank 8" in said


@pytest.mark.parametrize(
    ("base", "words"),
    [("pith-wide", "wide, and the hidden size of its base is"), ("pith-small", "pith-small")],
)
def test_an_adapter_of_another_model_is_named(tmp_path: Path, base: str, words: str) -> None:
    said = refusal(make_adapter(tmp_path / "pith-small", base=base))
    assert words in said and WEIGHTS in said


@pytest.mark.parametrize("kept", [0, 7, 100, -1])
def test_a_file_that_was_cut_off_is_named(folder: Path, kept: int) -> None:
    weights = folder / WEIGHTS
    weights.write_bytes(weights.read_bytes()[:kept])
    assert refusal(folder).startswith(f"loud: {weights}: ")


def test_a_header_that_names_no_tensors_is_refused(folder: Path) -> None:
    for header in (b"[]", b"{}", b'{"a": 1}', b'{"a": {"data_offsets": []}}', b"\xff"):
        (folder / WEIGHTS).write_bytes(len(header).to_bytes(8, "little") + header)
        assert refusal(folder).startswith(f"loud: {folder / WEIGHTS}: ")


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
def test_a_file_that_is_not_there_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    assert f"{folder / name}: cannot be read: No such file" in refusal(folder)


def test_an_adapter_of_the_hub_is_fetched_at_its_commit_and_without_pickles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the hub's cache as it lies on a machine, without a network."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    snapshot = tmp_path / "models--acme--loud/snapshots" / commit
    make_adapter(snapshot)
    import huggingface_hub.constants as hub

    monkeypatch.setattr(hub, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(hub, "HF_HUB_CACHE", str(tmp_path))
    assert AdapterSource("loud", "acme/loud", commit).fetch() == snapshot
    with pytest.raises(BrokenAdapter, match="loud: acme/quiet cannot be fetched from the hub"):
        AdapterSource("loud", "acme/quiet", commit).fetch()
