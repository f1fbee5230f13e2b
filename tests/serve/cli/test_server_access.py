"""Where commands find the server of a file, and what a start says of it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from serve.cli.serve import announce
from serve.cli.server_access import url_and_key
from serve.cluster.progress import Progress
from serve.config.paths import ConfigError
from serve.config.settings import load_settings
from tests.serve.served import settings_document


@pytest.fixture
def on_nodes(tmp_path: Path) -> Path:
    """A file whose HTTP processes listen on the nodes of a cluster."""
    document = settings_document(tmp_path, ray={"address": "127.0.0.1:6379"})
    document["server"] = {"host": "node", "port": 8000, "ingress_replicas": 1}
    file = tmp_path / "pith.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


def test_a_command_does_not_take_node_for_a_host(on_nodes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="with --url"):
        url_and_key(None, None, on_nodes)
    monkeypatch.setenv("PITH_API_KEY", "pith_a_b")
    assert url_and_key("http://10.0.0.3:8000/v1", None, on_nodes) == ("http://10.0.0.3:8000", "pith_a_b")


def test_a_start_on_nodes_says_where_they_listen(on_nodes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    progress = Progress()
    monkeypatch.setattr(progress, "say", lines.append)
    announce(load_settings(on_nodes), None, progress, "")
    said = "\n".join(lines)
    assert "ready: http://NODE:8000" in said and "NODE is the address of any node" in said
    assert "//node" not in said


@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_demo_key_is_shown_on_a_terminal_alone_and_else_the_path_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_terminal: bool
) -> None:
    file = tmp_path / "pith.yaml"
    file.write_text(yaml.safe_dump(settings_document(tmp_path / "a folder")))
    settings = load_settings(file)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    announce(settings, "pith_id_secret", Progress(), "Ctrl-C stops everything.")
    said = capsys.readouterr()
    assert ("pith_id_secret" in said.out) == is_terminal
    assert "pith_id_secret" not in said.err
    assert str(settings.demo.key_path) in said.out
    if not is_terminal:
        # In a shell the quoted path is one word again.
        assert f"Bearer $(cat '{settings.demo.key_path}')" in said.out
