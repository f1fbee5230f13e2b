"""Applications by import path, as Ray Serve asks for them: which there are, and what is refused before any is made."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from serve.cluster.import_path import build, settings_of
from serve.config.paths import ConfigError
from tests.serve.served import settings_document


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "pith.yaml"
    file.write_text(
        yaml.safe_dump(settings_document(tmp_path, ray={"address": "auto"}, server={"ingress_replicas": 1}))
    )
    return file


def test_relative_paths_are_relative_to_the_file_wherever_serve_runs(config: Path) -> None:
    document = yaml.safe_load(config.read_text())
    config.write_text(yaml.safe_dump({**document, "state_dir": "state"}))
    assert settings_of({"config": str(config)}).state_dir == config.parent / "state"


def test_an_application_that_is_not_in_the_file_is_refused_with_those_that_are(config: Path) -> None:
    with pytest.raises(ConfigError, match=r"'model:none', which is none of ingress, ops, model:alpha"):
        build({"config": str(config), "app": "model:none"})


def test_without_a_file_or_a_cluster_nothing_is_built(config: Path) -> None:
    with pytest.raises(ConfigError, match=r"args\.config is missing"):
        build({"app": "ingress"})
    document = yaml.safe_load(config.read_text())
    config.write_text(yaml.safe_dump({**document, "ray": {}}))
    with pytest.raises(ConfigError, match=r"ray\.address: is missing"):
        build({"config": str(config), "app": "ingress"})
