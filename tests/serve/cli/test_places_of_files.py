"""Where a command looks for the ledger, from wherever it is called, and that no command but the first makes one."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from serve.cli.main import main
from serve.config.paths import DEFAULT_CONFIG, ROOT, anchor_of
from serve.config.settings import load_anchored
from tests.migrated import migrated_file
from tests.serve.cli.commands import Done
from tests.serve.served import settings_document

RELATIVE = {
    "state_dir": "var",
    "billing": {"database_url": "sqlite:///var/pith.db", "spool_path": "var/spool.db"},
    "demo": {"enabled": True, "key_path": "var/demo-key"},
}
# Every command that works on a ledger, except those that make one: `serve` and `workspace create`.
NEED_A_LEDGER = [
    "usage",
    "statement acme 2026-01",
    "reconcile",
    "reconcile --rebuild",
    "audit",
    "workspace list",
    "workspace set acme --billing",
    "workspace revoke acme",
    "project create acme p",
    "project list",
    "project set acme/p --metered",
    "project revoke acme/p",
    "key create acme/p",
    "key list",
    "key revoke abc",
    "collections list",
    "collections export",
    "collections cut acme",
    "collections mark col_1 paid",
    "spool list",
    "spool retry 1",
    "spool drop 1",
]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration with relative paths, in a folder that is not the working directory."""
    (tmp_path / "etc").mkdir()
    path = tmp_path / "etc/pith.yaml"
    path.write_text(yaml.safe_dump(settings_document(tmp_path) | RELATIVE))
    return path


def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path, *arguments: object
) -> Done:
    folder.mkdir(exist_ok=True)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["pith", *map(str, arguments)])
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main()
    return Done(int(ended.value.code or 0), *capsys.readouterr())


def files_under(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize("command", NEED_A_LEDGER)
def test_without_a_ledger_a_command_says_so_and_makes_nothing(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    config: Path,
    command: str,
) -> None:
    before = files_under(tmp_path) | {"elsewhere"}
    done = run(monkeypatch, capsys, tmp_path / "elsewhere", *command.split(), "--config", config)
    assert done.code == 2
    said = done.complaint()
    assert said.startswith(("no ledger at ", "no spool at ")) and said.endswith("; start the server first")
    assert str(tmp_path / "etc/var") in said
    assert files_under(tmp_path) == before


def test_a_database_that_is_no_ledger_yet_is_none_either(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, config: Path
) -> None:
    (tmp_path / "etc/var").mkdir()
    (tmp_path / "etc/var/pith.db").touch()
    done = run(monkeypatch, capsys, tmp_path, "usage", "--config", config)
    assert done.code == 2 and done.complaint().startswith("no ledger at ")
    assert (tmp_path / "etc/var/pith.db").stat().st_size == 0


def test_the_ledger_is_the_same_from_every_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, config: Path
) -> None:
    made = run(monkeypatch, capsys, tmp_path / "a", "workspace", "create", "acme", "--config", config)
    assert made.code == 0, made.err
    assert {"etc/var/pith.db", "etc/var/pepper"} <= files_under(tmp_path) and not files_under(tmp_path / "a")
    for folder in (tmp_path / "b", tmp_path / "etc", ROOT):
        # The same file by another spelling, too.
        for spelled in (config, Path(os.path.relpath(config, folder))):
            listed = run(monkeypatch, capsys, folder, "workspace", "list", "--json", "--config", spelled)
            assert [row["name"] for row in listed.json()] == ["acme"]
    assert not files_under(tmp_path / "b")


def test_a_list_makes_no_pepper(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, config: Path
) -> None:
    (tmp_path / "etc/var").mkdir()
    (tmp_path / "etc/var/pith.db").write_bytes(asyncio.run(migrated_file()))
    for command in ("workspace list", "project list", "key list", "usage", "spool list"):
        done = run(monkeypatch, capsys, tmp_path, *command.split(), "--config", config)
        assert (done.code, done.out) == (0, "none\n"), done.err
    assert not {"etc/var/pepper", "etc/var/spool.db", "etc/var/demo-key"} & files_under(tmp_path)


def test_a_shipped_configuration_keeps_its_state_in_the_checkout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert DEFAULT_CONFIG == ROOT / "configs/embedded.yaml"
    for path in (ROOT / "configs").glob("*.yaml"):
        settings = load_anchored(path)
        assert settings.state_dir == ROOT / "var"
        ledger = settings.billing.database_url
        # Machines share a ledger on a server.
        assert ledger == f"sqlite:///{ROOT}/var/pith.db" or (
            path.name == "cluster.yaml" and ledger.startswith("postgresql")
        )
        assert settings.billing.spool_path == ROOT / "var/spool.db"
        assert settings.demo.key_path == ROOT / "var/demo-key"
    monkeypatch.chdir(ROOT)
    assert anchor_of(Path("configs/embedded.yaml")) == ROOT


def test_a_linked_configuration_counts_where_it_stands(tmp_path: Path, config: Path) -> None:
    (tmp_path / "srv").mkdir()
    (tmp_path / "srv/pith.yaml").symlink_to(config)
    assert anchor_of(tmp_path / "srv/pith.yaml") == tmp_path / "srv"


def test_checkpoints_and_tokenizers_that_begin_with_a_dot_are_files_beside_the_configuration(
    tmp_path: Path,
) -> None:
    document: Any = settings_document(tmp_path)
    document["models"][0]["checkpoint"] = "./weights/a"
    document["models"][1]["checkpoint"] = "org/name"
    document["compression"] = {
        "models": [
            {"id": "words", "name": "w", "blurb": "b", "kind": "token_classifier"}
            | {"checkpoint": "../words", "tokenizer": "./tokenizer"}
        ]
    }
    (tmp_path / "pith.yaml").write_text(yaml.safe_dump(document))
    settings = load_anchored(tmp_path / "pith.yaml")
    assert Path(settings.models[0].checkpoint) == tmp_path / "weights/a"
    assert settings.models[1].checkpoint == "org/name"
    (compressor,) = settings.compression.models
    assert compressor.tokenizer == str(tmp_path / "tokenizer")
    assert compressor.checkpoint is not None
    assert Path(compressor.checkpoint).resolve() == (tmp_path / "../words").resolve()


def test_a_ledger_that_is_away_is_named_without_its_password(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    url = "postgresql+asyncpg://pith:secret@127.0.0.1:1/none"
    document = settings_document(
        tmp_path, billing={"database_url": url, "spool_path": str(tmp_path / "s.db")}
    )
    (tmp_path / "pith.yaml").write_text(yaml.safe_dump(document))
    done = run(monkeypatch, capsys, tmp_path, "usage", "--config", tmp_path / "pith.yaml")
    assert done.code == 1 and "the ledger is unavailable" in done.complaint() and "secret" not in done.err
