"""What a report says of the versions that it measured."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from benchmarks.load.machine import versions


def test_packages_that_are_installed_are_named_with_their_versions() -> None:
    assert versions(["psutil", "no-such-package"]) == [f"psutil {version('psutil')}"]


def test_another_environment_is_asked_for_its_own(tmp_path: Path) -> None:
    info = tmp_path / "lib/python3.12/site-packages/litellm-9.8.7.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Name: litellm\nVersion: 9.8.7\n")
    assert versions(["litellm", "psutil"], tmp_path) == ["litellm 9.8.7"]
    assert versions(["litellm"], tmp_path / "not made") == []
