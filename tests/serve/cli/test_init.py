"""`pith init`: what it writes, and what it leaves as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from serve.cli.config import Profile
from serve.cli.main import app
from serve.config.paths import SHIPPED, ConfigError
from serve.config.settings import load_anchored


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
