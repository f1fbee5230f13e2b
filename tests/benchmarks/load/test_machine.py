"""What a report says of the versions that it measured."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from benchmarks.load.machine import versions, without_keys


def test_packages_that_are_installed_are_named_with_their_versions() -> None:
    assert versions(["psutil", "no-such-package"]) == [f"psutil {version('psutil')}"]


def test_another_environment_is_asked_for_its_own(tmp_path: Path) -> None:
    info = tmp_path / "lib/python3.12/site-packages/litellm-9.8.7.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Name: litellm\nVersion: 9.8.7\n")
    assert versions(["litellm", "psutil"], tmp_path) == ["litellm 9.8.7"]
    assert versions(["litellm"], tmp_path / "not made") == []


def test_a_command_is_shown_without_its_key() -> None:
    words = ["--url", "http://127.0.0.1:1", "--key", "pith_a_b", "--key=pith_a_b", "--rate", "5"]
    assert without_keys(words) == [
        "--url",
        "http://127.0.0.1:1",
        "--key",
        "…",
        "--key=…",
        "--rate",
        "5",
    ]
