"""The committed checkpoints are what the manifest says, and folders made of them are whole or absent."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from benchmarks.training.chat_models.__main__ import write_manifest
from models.embedded.install import (
    ARTEFACTS,
    EMBEDDED_MODELS,
    MANIFEST,
    DamagedArtefact,
    ensure_checkpoints,
    is_intact,
    read_manifest,
    sha256_of,
)

CHECKPOINT_FILES = {
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
}


@pytest.fixture
def artefacts(tmp_path: Path) -> Path:
    """A small tree of the same shape as the committed one."""
    root = tmp_path / "artefacts"
    for path, text in {
        "tokenizer/tokenizer.json": "tokenizer",
        "checkpoints/one/model.safetensors": "weights of one",
        "checkpoints/two/model.safetensors": "weights of two",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    write_manifest(root)
    return root


def test_the_manifest_lists_every_committed_artefact_with_its_hash() -> None:
    listed = json.loads((ARTEFACTS / MANIFEST).read_text())["sha256"]
    found = {
        path.relative_to(ARTEFACTS).as_posix(): sha256_of(path)
        for folder in ("checkpoints", "tokenizer")
        for path in (ARTEFACTS / folder).rglob("*")
        if path.is_file()
    }
    assert listed == found


def test_the_committed_artefacts_stay_small() -> None:
    total = sum((ARTEFACTS / path).stat().st_size for files in read_manifest().values() for path in files)
    assert total < 14_000_000  # the tokenizer counts once for each model here
    assert list(read_manifest()) == sorted(EMBEDDED_MODELS) == sorted(ROSTER)


# Architecture, context and parameters, the tied embedding counted once.
ROSTER = {
    "pith-mini": ("LlamaForCausalLM", 16384, 2_053_504),
    "pith-small": ("Qwen2ForCausalLM", 2048, 820_800),
    "pith-base": ("Qwen3ForCausalLM", 65536, 951_872),
    "pith-wide": ("LlamaForCausalLM", 2048, 983_616),
}


@pytest.mark.parametrize("model_id", ROSTER)
def test_a_checkpoint_is_what_the_roster_says(model_id: str, tmp_path: Path) -> None:
    architecture, context_length, parameters = ROSTER[model_id]
    folder = ensure_checkpoints(tmp_path)[model_id]
    config = json.loads((folder / "config.json").read_text())
    assert {path.name for path in folder.iterdir()} == CHECKPOINT_FILES
    assert config["architectures"] == [architecture]
    assert config["max_position_embeddings"] == context_length
    assert config["dtype"] == "bfloat16"
    assert "auto_map" not in config, "remote code is never needed"
    assert stored_parameters(folder / "model.safetensors") == parameters


def stored_parameters(path: Path) -> int:
    """Counts from the safetensors header: eight bytes of length, then JSON."""
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    tensors = [entry for name, entry in header.items() if name != "__metadata__"]
    assert {entry["dtype"] for entry in tensors} == {"BF16"}
    return sum(end - start for start, end in (entry["data_offsets"] for entry in tensors)) // 2


def test_every_model_ends_its_reply_at_the_turn_end(tmp_path: Path) -> None:
    for folder in ensure_checkpoints(tmp_path).values():
        tokenizer = json.loads((folder / "tokenizer.json").read_text())
        ids = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
        defaults = json.loads((folder / "generation_config.json").read_text())
        assert defaults["eos_token_id"] == [ids["<|im_end|>"], ids["<|endoftext|>"]]


def test_a_second_call_changes_nothing(artefacts: Path, tmp_path: Path) -> None:
    made = ensure_checkpoints(tmp_path / "out", artefacts=artefacts)
    before = {path: path.stat().st_ino for folder in made.values() for path in folder.iterdir()}
    assert ensure_checkpoints(tmp_path / "out", artefacts=artefacts) == made
    assert {path: path.stat().st_ino for path in before} == before


@pytest.mark.parametrize("damage", ["flipped", "truncated", "lost", "added", "folder lost", "a file instead"])
def test_a_damaged_folder_is_repaired_and_the_others_left_alone(
    damage: str, artefacts: Path, tmp_path: Path
) -> None:
    made = ensure_checkpoints(tmp_path / "out", artefacts=artefacts)
    untouched = made["two"].stat().st_ino
    weights = made["one"] / "model.safetensors"
    if damage == "flipped":
        weights.write_text("weights of onf")
    elif damage == "truncated":
        weights.write_text("")
    elif damage == "lost":
        weights.unlink()
    elif damage == "added":
        (made["one"] / "model-2.safetensors").write_text("more")
    else:
        shutil.rmtree(made["one"])
        if damage == "a file instead":
            made["one"].write_text("")
    plan = read_manifest(artefacts)["one"]
    assert not is_intact(made["one"], plan)
    ensure_checkpoints(tmp_path / "out", artefacts=artefacts)
    assert is_intact(made["one"], plan)
    assert made["two"].stat().st_ino == untouched
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"one", "two", ".lock"}


def test_a_damaged_checkout_is_named_and_leaves_no_folder(artefacts: Path, tmp_path: Path) -> None:
    (artefacts / "checkpoints/one/model.safetensors").write_text("version https://large-files")
    with pytest.raises(DamagedArtefact, match=r"checkpoints/one/model\.safetensors differs"):
        ensure_checkpoints(tmp_path / "out", artefacts=artefacts)
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".lock"]


def test_a_missing_artefact_is_named(artefacts: Path, tmp_path: Path) -> None:
    (artefacts / "tokenizer/tokenizer.json").unlink()
    with pytest.raises(DamagedArtefact, match=r"tokenizer/tokenizer\.json is missing"):
        ensure_checkpoints(tmp_path / "out", artefacts=artefacts)


def test_a_folder_is_never_seen_half_made(artefacts: Path, tmp_path: Path) -> None:
    """Readers look all the while that several threads build and break it."""
    out, plan = tmp_path / "out", read_manifest(artefacts)["one"]
    half_made: list[set[str]] = []
    finished = threading.Event()

    def watch() -> None:
        while not finished.is_set():
            try:
                before = (out / "one").stat().st_ino
                names = set(os.listdir(out / "one"))
                is_same = (out / "one").stat().st_ino == before
            except FileNotFoundError:
                # Not there at all is fine: nobody can load half of nothing.
                continue
            # A folder that was moved away while it was listed is the old one on its way out.
            if is_same and names and names != {"tokenizer.json", "model.safetensors"}:
                half_made.append(names)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for _ in range(20):
            builders = [
                threading.Thread(target=ensure_checkpoints, args=(out,), kwargs={"artefacts": artefacts})
                for _ in range(3)
            ]
            for builder in builders:
                builder.start()
            for builder in builders:
                builder.join()
            assert is_intact(out / "one", plan)
            shutil.rmtree(out / "two")
            (out / "one" / "model.safetensors").write_text("damaged")
    finally:
        finished.set()
        watcher.join()
    assert half_made == []


def test_importing_the_package_needs_no_heavy_library() -> None:
    script = (
        "import sys, models.embedded;"
        "print(sorted({'torch', 'transformers', 'tokenizers', 'numpy', 'vllm'} & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ARTEFACTS.parent.parent)}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.strip() == "[]"
