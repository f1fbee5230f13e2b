"""What a shell completes: verbs, options, ids of models, and what is in a ledger's file."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from serve.cli.main import main
from serve.config.settings import load_settings
from serve.money.ledger_setup import open_accounts
from tests.migrated import migrated_file
from tests.serve.served import settings_document

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
Completed = Callable[[str], list[str]]


@pytest.fixture(params=["bash", "zsh", "fish"])
def completed(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Completed:
    """What the shell is offered for a line that the cursor is at the end of."""

    def complete(line: str) -> list[str]:
        words = line.split(" ")
        environment = {
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
            "_TYPER_COMPLETE_ARGS": line,
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
            "_PITH_COMPLETE": f"complete_{request.param}",
        }
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        capsys.readouterr()
        with pytest.raises(SystemExit):
            main()
        offered = capsys.readouterr().out.splitlines()
        if request.param == "zsh":
            return re.findall(r'^(?:_arguments \'\*: :\(\()?"([^"]*)"', "\n".join(offered), re.MULTILINE)
        return [item.split("\t")[0] for item in offered if item]

    return complete


def test_a_shell_completes_verbs_and_options(completed: Completed) -> None:
    assert completed("pith sp") == ["spool"]
    assert completed("pith --ver") == ["--version"]
    assert completed("pith key c") == ["create"]
    assert completed("pith usage --sav") == ["--savings"]


def test_zsh_completes_at_the_first_press_of_the_key(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_PITH_COMPLETE", "source_zsh")
    with pytest.raises(SystemExit):
        main()
    script = capsys.readouterr().out
    assert (
        script.startswith("#compdef pith") and 'loadautofunc ]]; then\n  _pith_completion "$@"\nfi' in script
    )


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "pith.db").write_bytes(asyncio.run(migrated_file()))
    path = tmp_path / "pith.yaml"
    models = [{"id": "lexical", "name": "Lexical", "blurb": "For tests.", "kind": "lexical"}]
    path.write_text(yaml.safe_dump(settings_document(tmp_path, compression={"models": models})))
    asyncio.run(with_accounts(path))
    return path


async def with_accounts(config: Path) -> None:
    database, accounts = await open_accounts(load_settings(config))
    for workspace in ("acme", "gone"):
        await accounts.create_workspace(workspace, now=NOW)
        await accounts.create_project(workspace, "search", now=NOW)
        await accounts.keys.create(f"{workspace}/search", "ci", now=NOW)
    await accounts.revoke_workspace("gone", now=NOW)
    await database.close()


def test_a_shell_completes_what_is_in_the_ledger_and_was_not_revoked(
    completed: Completed, config: Path
) -> None:
    given = f"--config {config}"
    assert completed(f"pith workspace set {given} ") == ["acme"]
    assert completed(f"pith project set {given} ac") == ["acme/search"]
    assert completed(f"pith project set {given} x") == []
    assert completed(f"pith usage {given} --workspace ") == ["acme"]
    (key,) = completed(f"pith key revoke {given} ")
    assert re.fullmatch(r"[a-z0-9]{16}", key)


def test_a_shell_completes_the_models_of_the_configuration(completed: Completed, config: Path) -> None:
    assert completed(f"pith compress --config {config} --model ") == ["lexical"]
    document = yaml.safe_load(config.read_text())
    document["models"].append({"id": "vectors", "kind": "embedding"})
    config.write_text(yaml.safe_dump(document))
    assert completed(f"pith chat --config {config} --model ") == ["alpha", "beta", "gamma", "delta"]


@pytest.mark.parametrize(
    "text",
    ["", "a: [", "[]", "billing: 3", "billing: {database_url: 7}", "compression: {models: [{id: 1}, 2]}"],
)
def test_a_configuration_that_is_wrong_completes_to_nothing(
    completed: Completed, tmp_path: Path, text: str
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    assert completed(f"pith workspace set --config {path} ") == []
    assert completed(f"pith compress --config {path} --model ") == []
    assert completed(f"pith key revoke --config {tmp_path / 'none.yaml'} ") == []


ROOT = Path(__file__).parents[3]
# `true`, so that bash stays: it is the parent by which the current shell is known.
INSTALL = "pith --install-completion; true"
COMPLETE = """
. ~/.bashrc
COMP_WORDS=(pith usa) COMP_CWORD=1
_pith_completion pith
echo "${COMPREPLY[@]}"
"""


def test_bash_completes_a_verb_after_it_was_installed(tmp_path: Path) -> None:
    pith = tmp_path / "bin/pith"
    pith.parent.mkdir()
    pith.write_text(f"#!{sys.executable}\nfrom serve.cli.main import main\n\nmain()\n")
    pith.chmod(0o755)
    environment = os.environ | {
        "HOME": str(tmp_path),
        "PATH": f"{pith.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }

    def bash(script: str) -> str:
        done = subprocess.run(
            ["bash", "--norc", "-c", script], env=environment, cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "bash completion installed" in bash(INSTALL)
    assert bash(COMPLETE).split() == ["usage"]
