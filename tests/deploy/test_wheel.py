"""The wheel: that it holds every file that serves and nothing else, and what `pith` does that came from one."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from email.parser import HeaderParser
from fnmatch import fnmatch
from pathlib import Path

import pytest

from serve.cluster.nodes import PACKAGES
from tests.deploy.chart import ROOT
from tests.deploy.test_pythons import PROJECT

SERVED = (*PACKAGES, "configs")
# Of those packages. A file that is neither here nor in the wheel is one that was forgotten.
LEFT_OUT = ("*/.gitattributes",)
BUILD_S = 600
RUN_S = 300
Pith = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([ROOT / "scripts/wheel", folder], check=True, capture_output=True, timeout=BUILD_S)
    assert {file.name for file in folder.glob("*.txt")} == {"cpu.txt", "gpu.txt"}
    (built,) = folder.glob("pith-*.whl")
    return built


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where it is installed, as an installer unpacks it."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture
def pith(site: Path, tmp_path: Path) -> Pith:
    """Runs the `pith` that is installed there, in a folder that is empty at first."""
    here = tmp_path / "here"
    here.mkdir()

    def run(*arguments: object, text: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-P", "-c", "from serve.cli.main import main; main()", *map(str, arguments)],
            cwd=here,
            env={**os.environ, "PYTHONPATH": str(site)},
            input=text,
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
        )

    return run


def tracked() -> set[str]:
    listed = subprocess.run(["git", "ls-files", "-z", *SERVED], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return {name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()}


def test_it_holds_every_file_of_what_serves_and_nothing_else(wheel: Path) -> None:
    named = zipfile.ZipFile(wheel).namelist()
    held = {name for name in named if ".dist-info/" not in name}
    expected = {name for name in tracked() if not any(fnmatch(name, pattern) for pattern in LEFT_OUT)}
    assert expected - held == set(), "not in the wheel: see package-data in pyproject.toml"
    assert held - expected == set(), "in the wheel, and not in the repository"


def test_it_says_what_it_needs_and_under_which_licence(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    names = {Path(name).name: name for name in archive.namelist() if ".dist-info/" in name}
    assert {"LICENSE", "NOTICE"} <= set(names)
    metadata = HeaderParser().parsestr(archive.read(names["METADATA"]).decode())
    needed = [each for each in metadata.get_all("Requires-Dist", []) if "extra ==" not in each]
    assert len(needed) == len(PROJECT["dependencies"])
    assert set(metadata.get_all("Provides-Extra", [])) == set(PROJECT["optional-dependencies"])
    commands = archive.read(names["entry_points.txt"]).decode()
    assert "pith = serve.cli.main:main" in commands and "models.vllm.plugin:register" in commands


def test_without_a_configuration_it_says_how_to_get_one_which_is_then_its_default(
    pith: Pith, tmp_path: Path
) -> None:
    done = pith("serve")
    assert done.returncode == 2 and "pith.yaml: there is no such file; `pith init FOLDER`" in done.stderr
    assert pith("init", ".").returncode == 0
    done = pith("usage")
    assert done.returncode == 2 and f"no ledger at {tmp_path}/here/var/pith.db" in done.stderr


def test_a_configuration_that_came_with_it_is_not_run(pith: Pith, site: Path) -> None:
    done = pith("workspace", "create", "acme", "--config", site / "configs/embedded.yaml")
    assert done.returncode == 2 and "comes with pith; `pith init FOLDER`" in done.stderr
    assert not (site / "configs/var").exists() and not (site / "var").exists()


def test_it_compresses_with_the_weights_that_it_holds(pith: Pith) -> None:
    assert pith("init", ".").returncode == 0
    text = "Marie Curie discovered radium in 1898. She was born in Warsaw. The weather is fine today."
    done = pith("compress", "-", "--query", "who discovered radium?", "--ratio", "0.7", text=text)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Marie Curie discovered radium in 1898.") and len(done.stdout) < len(text)
