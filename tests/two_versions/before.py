"""The code of another commit on the disk, with which processes of that version run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

from tests.two_versions import wire
from tests.two_versions.wire import Samples

ROOT = Path(__file__).resolve().parents[2]
# The release before this one.
BEFORE = "fc80ca0675f6a20ec1f5f9e32cde6080c12bf0fd"
# The oldest commit with this one's revision of the ledger. Two versions on one ledger are promised where it stays.
LEDGER_BEFORE = "1344580527b110385acd4f7218ad0bea43958a4b"


class NoSuchCommit(Exception):
    """This clone does not have it."""


def is_here(commit: str) -> bool:
    found = subprocess.run(
        ["git", "cat-file", "-e", f"{commit}^{{commit}}"], cwd=ROOT, capture_output=True, check=False
    )
    return found.returncode == 0


@contextmanager
def code_of(commit: str) -> Iterator[Path]:
    """A folder with what the commit has. Raises `NoSuchCommit`."""
    if not is_here(commit):
        raise NoSuchCommit(f"this clone has no commit {commit}: git fetch origin {commit}")
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory(prefix="pith-before-") as name:
        with tarfile.open(fileobj=BytesIO(archive)) as tar:
            tar.extractall(name, filter="data")
        yield Path(name)


def revision(code: Path) -> str:
    """The newest of the ledger that this code knows."""
    return max(path.name[:4] for path in (code / "billing/store/migrations/versions").glob("*.py"))


def environment(code: Path) -> dict[str, str]:
    """Of a process that runs this code, on the packages of this one."""
    return {**os.environ, "PYTHONPATH": str(code), "PYTHONDONTWRITEBYTECODE": "1"}


def run(code: Path, program: str, *arguments: str, given: bytes = b"", within_s: float = 120.0) -> bytes:
    """What a program says that runs this code. Raises `RuntimeError` with what it complained of."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, *arguments],
        cwd=code,
        env=environment(code),
        input=given,
        capture_output=True,
        timeout=within_s,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr.decode()[-3000:])
    return done.stdout


def cross(writer: Path, reader: Path) -> tuple[Samples, Samples]:
    """What one version writes of all that crosses between processes, and what the other one reads of it."""
    program = Path(wire.__file__).read_text()
    written = run(writer, program, "write")
    return json.loads(written), json.loads(run(reader, program, "read", given=written))
