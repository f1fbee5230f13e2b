"""That a command runs beside a server, learns where it is, and that the server is gone afterwards."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest

from benchmarks.load.server import ROOT, CannotRun, Server, free_port
from benchmarks.served import run_beside

ASK = (
    "import os, sys, urllib.request as u; u.urlopen('http://127.0.0.1:{port}/health');"
    "open(sys.argv[1], 'w').write(os.environ['PITH_API_KEY'] + ' {pid}'); sys.exit(3)"
)


def fake_server(folder: Path, *words: str) -> Server:
    port = free_port()
    command = [sys.executable, *(words or ("-m", "tests.benchmarks.load.fake_server", str(port), "0"))]
    environment = {"PYTHONPATH": str(ROOT)}
    return Server(
        "fake", "fake", command, environment, folder, f"http://127.0.0.1:{port}", lambda: "a-key", 30
    )


def test_a_command_is_told_where_the_server_is_and_its_exit_status_counts(tmp_path: Path) -> None:
    told = tmp_path / "told"
    assert run_beside(fake_server(tmp_path), [sys.executable, "-c", ASK, str(told)]) == 3
    key, pid = told.read_text().split()
    assert key == "a-key"
    assert not psutil.pid_exists(int(pid))


def test_a_server_that_does_not_start_is_named_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match="fake ended with 1: no ledger"):
        run_beside(fake_server(tmp_path, "-c", "raise SystemExit('no ledger')"), ["true"])
