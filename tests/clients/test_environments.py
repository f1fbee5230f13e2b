"""An environment holds the files that its lock names and no others, and is made again only for another lock."""

from __future__ import annotations

import hashlib
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.clients import environments
from tests.clients.environments import CannotInstall, environment
from tests.integration.missing import cannot_run

pytestmark = pytest.mark.integration
DIST_INFO = "locked-1.0.dist-info"


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of the test's own, where pip is told to look; uv itself is installed from wherever it is."""
    monkeypatch.setattr(environments, "FOLDER", tmp_path / "clients")
    monkeypatch.setattr(environments, "CACHE", tmp_path / "clients/cache")
    try:
        environments._uv()
    except CannotInstall as error:
        cannot_run(str(error))
    path = tmp_path / "locked-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("locked.py", "said = 'hello'\n")
        archive.writestr(f"{DIST_INFO}/METADATA", "Metadata-Version: 2.1\nName: locked\nVersion: 1.0\n")
        archive.writestr(
            f"{DIST_INFO}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{DIST_INFO}/RECORD", "")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    (tmp_path / "locks").mkdir()
    monkeypatch.setattr(environments, "LOCKS", tmp_path / "locks")
    uv = environments.FOLDER / "uv/bin/uv"
    monkeypatch.setattr(environments, "_uv", lambda: str(uv))
    return path


def write_lock(digest: str) -> None:
    text = f"# Asked for: locked\nlocked==1.0 \\\n    --hash=sha256:{digest}\n"
    (environments.LOCKS / "made-up.txt").write_text(text)


def test_an_environment_is_made_once_for_each_lock_and_of_no_other_file(wheel: Path) -> None:
    write_lock("0" * 64)
    with pytest.raises(CannotInstall, match=r"(?i)hash mismatch"):
        environment("made-up")
    write_lock(hashlib.sha256(wheel.read_bytes()).hexdigest())
    python = environment("made-up").programs / "python"
    said = [str(python), "-c", "import locked; print(locked.said)"]
    assert subprocess.run(said, capture_output=True, text=True, check=True).stdout == "hello\n"
    wheel.unlink()
    assert environment("made-up").programs / "python" == python
    write_lock("0" * 64)
    for _ in range(2):  # Half an environment is not taken for a whole one.
        with pytest.raises(CannotInstall):
            environment("made-up")
