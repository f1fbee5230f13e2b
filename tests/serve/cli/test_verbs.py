"""`pith` by itself: its help and what that imports, its verbs, its version, and `pith init`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from serve.cli.config import Profile
from serve.cli.main import GROUPS, VERBS, app, recorded_commit
from serve.config.paths import SHIPPED, ConfigError
from serve.config.settings import load_anchored

ROOT = Path(__file__).parents[3]
HEAVY = ("pydantic", "sqlalchemy", "rich", "yaml", "ray", "numpy", "aiohttp", "fastapi", "structlog")

LOADED = f"""
import contextlib, io, json, sys
from serve.cli.main import app
from serve.cli.main import VERBS

def loaded(*arguments):
    with contextlib.redirect_stdout(io.StringIO()):
        app(list(arguments), standalone_mode=False)
    heavy = [name for name in {HEAVY!r} if name in sys.modules]
    return heavy, [verb.name for verb in VERBS if verb.place.partition(":")[0] in sys.modules]

print(json.dumps([loaded("--help"), loaded("--version")]))
print(json.dumps([loaded(verb.name, "--help") for verb in VERBS]))
"""


def test_help_and_version_import_no_verb_and_a_verbs_help_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    before, verbs = map(json.loads, done.stdout.splitlines())
    assert before == [[[], []], [[], []]]
    assert {verb.name: heavy for verb, (heavy, _) in zip(VERBS, verbs, strict=True) if heavy} == {}


def test_the_line_of_each_verb_fits_into_the_help() -> None:
    shown = CliRunner().invoke(app, ["--help"]).stdout
    assert [line[:-1] for line in shown.splitlines() if line.endswith(":")][-len(GROUPS) :] == list(GROUPS)
    assert (
        len({line.index(verb.help) for verb in VERBS for line in shown.splitlines() if verb.help in line})
        == 1
    )
    assert all(f"  {verb.name} " in shown and verb.help in shown for verb in VERBS)


def test_a_verb_that_is_called_is_loaded() -> None:
    for verb in VERBS:
        done = CliRunner().invoke(app, [verb.name, "--help"], prog_name="pith")
        assert done.exit_code == 0 and f"Usage: pith {verb.name}" in done.stdout


def test_a_verb_that_is_none_is_refused_with_the_nearest() -> None:
    done = CliRunner().invoke(app, ["usag"])
    assert done.exit_code == 2 and "Did you mean 'usage'?" in done.stderr


def test_the_version_has_a_name_a_number_and_the_commit() -> None:
    done = CliRunner().invoke(app, ["--version"])
    assert done.exit_code == 0
    assert re.fullmatch(r"pith \d+\.\d+\.\d+( \(commit [0-9a-f]{12}\))?\n", done.stdout)


@pytest.mark.parametrize(
    ("record", "commit"),
    [
        ('{"vcs_info": {"vcs": "git", "commit_id": "0123456789abcdef"}}', "0123456789ab"),
        ('{"url": "file:///pith", "dir_info": {}}', None),
        ('{"vcs_info": []}', None),
        ("{", None),
        (None, None),
    ],
)  # fmt: skip
def test_the_commit_of_an_installation_from_a_repository_is_known(
    record: str | None, commit: str | None
) -> None:
    assert recorded_commit(record) == commit


def init(*arguments: object) -> str:
    done = CliRunner().invoke(app, ["init", *map(str, arguments)], prog_name="pith")
    if isinstance(done.exception, ConfigError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("profile", Profile)
def test_each_profile_is_written_and_keeps_its_state_beside_it(tmp_path: Path, profile: Profile) -> None:
    file = tmp_path / "a folder/pith.yaml"
    said = init(file.parent, "--profile", profile)
    assert f"pith serve --config '{file}'" in said
    assert load_anchored(file).state_dir == file.parent / "var"
    text = file.read_text()
    assert text.startswith(f"# Written by `pith init --profile {profile}` of pith ")
    assert yaml.safe_load(text) == yaml.safe_load((SHIPPED / f"{profile}.yaml").read_text())
    # What its comments tell an operator to run names the new file.
    assert "configs/" not in text


def test_there_is_a_profile_for_each_configuration_that_comes_with_pith() -> None:
    assert {file.stem for file in SHIPPED.glob("*.yaml")} == set(Profile)


def test_a_configuration_that_is_there_is_left_as_it_is(tmp_path: Path) -> None:
    init(tmp_path)
    (tmp_path / "pith.yaml").write_text("mine")
    with pytest.raises(ConfigError, match=f"^{tmp_path}/pith.yaml: is there already"):
        init(tmp_path, "--profile", "gpu")
    assert (tmp_path / "pith.yaml").read_text() == "mine"


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"file/below/pith\.yaml: cannot be written: Not a directory"):
        init(tmp_path / "file/below")
    with pytest.raises(ConfigError, match=f"^{tmp_path}/file: is there already"):
        init(tmp_path / "file")
