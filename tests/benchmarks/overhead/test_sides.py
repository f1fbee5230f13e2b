"""How each side is started: the same engine for all, and a reason where one cannot be."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from benchmarks.load.server import CONFIG_COPY, ROOT, CannotRun
from benchmarks.overhead import litellm, sides
from benchmarks.overhead.engine import Engine
from benchmarks.overhead.sides import HAPROXY_PORTS, NAMES, RAY_FAST, Workshop, build
from serve.config.settings import load_settings

ENGINE = Engine("tiny", "a/checkpoint", {"max_model_len": 64}, {"HF_HUB_OFFLINE": "1"})


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(ENGINE, ROOT / "configs/tiny.yaml", tmp_path)


def test_the_bare_engine_has_the_one_thread_that_ray_gives(workshop: Workshop) -> None:
    bare = workshop.bare()
    assert bare.environment["OMP_NUM_THREADS"] == "1"
    assert bare.environment["HF_HUB_OFFLINE"] == "1"
    assert list(bare.command[-2:]) == ["--max-model-len", "64"]


def test_ray_gets_the_same_engine_and_its_flags(workshop: Workshop) -> None:
    side = build("ray-fast", workshop, workshop.bare(), database_url=str)
    command = list(side.front.command)
    assert json.loads(command[command.index("--engine") + 1]) == {
        "model": "tiny",
        "checkpoint": "a/checkpoint",
        "arguments": {"max_model_len": 64},
        "environment": {"HF_HUB_OFFLINE": "1"},
    }
    assert RAY_FAST.items() <= side.front.environment.items()
    another = build("ray-direct", workshop, workshop.bare(), database_url=str).front.environment
    for name in HAPROXY_PORTS:
        assert side.front.environment[name] != another[name]
    plain = build("ray", workshop, workshop.bare(), database_url=str).front.environment
    assert not {*RAY_FAST, *HAPROXY_PORTS} & plain.keys()


def test_copies_of_the_model_are_kept_up_and_the_first_is_asked(workshop: Workshop, tmp_path: Path) -> None:
    four = replace(workshop, models=4)
    pith = build("pith", four, four.bare(), database_url=str).front
    settings = load_settings(tmp_path / "pith" / CONFIG_COPY)
    first, *copies = settings.engine_models
    assert pith.model == "tiny" and first.id == "pith-mini"
    assert [model.id for model in copies] == [f"pith-mini-copy-{number}" for number in (2, 3, 4)]
    assert {
        (model.replicas.min, model.replicas.max, model.checkpoint) for model in settings.engine_models
    } == {(1, 1, first.checkpoint)}
    direct = list(build("ray-direct", four, four.bare(), database_url=str).front.command)
    assert direct[direct.index("--models") + 1] == "4"


def test_pith_has_its_key_once_it_has_made_one(workshop: Workshop, tmp_path: Path) -> None:
    pith = build("pith", workshop, workshop.bare(), database_url=str).front
    assert pith.target.key == ""
    (tmp_path / "pith" / "var").mkdir()
    (tmp_path / "pith" / "var" / "demo-key").write_text("pith_a_b\n")
    assert pith.target.key == "pith_a_b"


def test_the_compressing_side_has_a_project_with_a_default_once_there_is_a_ledger(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def new_key(folder: Path, workspace: str, *, compression: str) -> str:
        made.append((folder, json.loads(compression)))
        return "pith_c_d"

    monkeypatch.setattr(sides, "new_key", new_key)
    server = build("pith-compressing", workshop, workshop.bare(), database_url=str).front
    assert server.target.key == "" and made == []
    (server.folder / "var").mkdir()
    (server.folder / "var" / "demo-key").write_text("pith_a_b\n")
    assert [server.target.key, server.target.key] == ["pith_c_d"] * 2
    assert made == [(tmp_path / "pith-compressing", {"target_ratio": 0.3})]


def test_litellm_stands_before_the_very_engine_that_is_measured_bare(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(litellm, "VENV", tmp_path / "venv")
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "litellm").touch()
    (tmp_path / "venv" / "has-database-client").touch()
    bare = workshop.bare()
    side = build("litellm", workshop, bare, database_url=lambda: "postgresql://pith@127.0.0.1:1/postgres")
    assert side.servers[0] is bare
    config = yaml.safe_load((tmp_path / "litellm" / "litellm.yaml").read_text())
    assert config["model_list"][0]["litellm_params"]["api_base"] == f"{bare.url}/v1"
    assert config["general_settings"]["database_url"].startswith("postgresql://")
    alone = build("litellm-nodb", workshop, bare, database_url=str).front
    assert alone.target.key == litellm.MASTER_KEY
    assert "DATABASE_URL" not in alone.environment


def test_litellm_that_is_not_installed_or_has_no_database_client_is_no_side(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(litellm, "VENV", tmp_path / "venv")
    for name in ("litellm", "litellm-nodb"):
        with pytest.raises(CannotRun, match="benchmarks/overhead/litellm-venv does that"):
            build(name, workshop, workshop.bare(), database_url=str)
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "litellm").touch()
    with pytest.raises(CannotRun, match="could not fetch its query engine"):
        build("litellm", workshop, workshop.bare(), database_url=str)


def test_every_name_is_a_side_of_its_own(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(litellm, "require_venv", lambda: None)
    monkeypatch.setattr(litellm, "require_database_client", lambda: None)
    workshop = replace(workshop, before=ROOT)
    bare = workshop.bare()
    titles = [build(name, workshop, bare, database_url=str).name for name in NAMES]
    assert len(set(titles)) == len(NAMES)


def test_another_checkout_of_pith_is_started_by_its_own_entry_point(
    workshop: Workshop, tmp_path: Path
) -> None:
    with pytest.raises(CannotRun, match="--before does not name a checkout"):
        workshop.pith_before()
    with pytest.raises(CannotRun, match="is not a checkout of pith"):
        replace(workshop, before=tmp_path).pith_before()
    (tmp_path / "pyproject.toml").write_text('[project]\nscripts = {pith = "old.place:start"}\n')
    server = replace(workshop, before=tmp_path).pith_before()
    assert server.environment["PYTHONPATH"] == str(tmp_path)
    assert "from old.place import start; start()" in server.command
