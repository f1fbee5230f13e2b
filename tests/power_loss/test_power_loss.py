"""A few of the power cuts of `python -m tests.power_loss`, each with all that its callers were told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from tests.faults.postgres import MissingProgram
from tests.power_loss.campaign import on_postgres, on_sqlite
from tests.power_loss.disk import Disk
from tests.power_loss.journal import NoCompiler, build_recorder, read, recorded_environment

CHANGES = """
import os, sys
folder = sys.argv[1]
os.mkdir(folder + "/sub")
with open(folder + "/sub/a", "wb", buffering=0) as file:
    file.write(b"0123456789")
    os.pwrite(file.fileno(), b"xy", 2)
    os.ftruncate(file.fileno(), 8)
    os.fsync(file.fileno())
    os.writev(file.fileno(), [b"A", b"B"])
os.link(folder + "/sub/a", folder + "/b")
os.rename(folder + "/b", folder + "/c")
os.unlink(folder + "/sub/a")
os.chdir(folder)
descriptor = os.open("d", os.O_CREAT | os.O_WRONLY)
os.posix_fallocate(descriptor, 0, 3)
os.rmdir("sub")
"""


def without(missing: Exception) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(str(missing))
    pytest.skip(str(missing))


def test_the_recorder_notes_each_change_of_a_folder(tmp_path: Path) -> None:
    folder, journal = tmp_path / "disk", tmp_path / "journal"
    folder.mkdir()
    journal.touch()
    try:
        library = build_recorder(tmp_path)
    except NoCompiler as missing:
        without(missing)
    disk = Disk(folder)
    environment = recorded_environment(library, folder, journal)
    subprocess.run([sys.executable, "-c", CHANGES, folder], check=True, env=environment)
    for record in read(journal):
        disk.apply(record)
    replayed = disk.now()
    assert replayed == {path.name: path.read_bytes() for path in folder.iterdir()}
    assert replayed["c"] == b"01xy4567\0\0AB"


def test_nothing_that_was_answered_is_lost_or_doubled_by_a_power_cut_on_sqlite() -> None:
    try:
        *_, findings = on_sqlite(seed=7, crashes=20, requests=60)
    except NoCompiler as missing:
        without(missing)
    assert not [(crash.position, crash.cut, crash.verdict.violations) for crash in findings.failed]
    assert findings.promises > 50


@pytest.mark.integration
def test_nothing_that_was_answered_is_lost_or_doubled_by_a_power_cut_on_postgresql() -> None:
    try:
        *_, findings = on_postgres(seed=7, crashes=4, requests=40)
    except (NoCompiler, MissingProgram) as missing:
        without(missing)
    assert not [(crash.position, crash.cut, crash.verdict.violations) for crash in findings.failed]
    # How many depends on what came first of a few requests and the database's own changes.
    assert findings.promises > 0
