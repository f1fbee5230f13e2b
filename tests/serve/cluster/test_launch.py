"""Starts and their errors, applications by import path, SIGHUP, and the counts of replicas in `/metrics`."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from serve.cluster.deployments.ops import counts_of
from serve.cluster.import_path import build, settings_of
from serve.cluster.replicas.status import reason_of
from serve.config.paths import ConfigError
from tests.serve.served import settings_document

MESSAGE = """The deployment failed to start 3 times in a row. Error:
ray::ServeReplica:m.initialize() (pid=1, ip=127.0.0.1)
RuntimeError: Traceback (most recent call last):
  File "replica.py", line 7, in check_health
    await self.check()
serve.cluster.PortsOpen: it listens on :::39079,
beyond loopback
"""


def failed(*messages: str) -> SimpleNamespace:
    deployments = {str(number): SimpleNamespace(message=text) for number, text in enumerate(messages)}
    return SimpleNamespace(message="Failed to update.", deployments=deployments)


def test_of_a_traceback_the_exception_is_said() -> None:
    told = "Failed to update. serve.cluster.PortsOpen: it listens on :::39079, beyond loopback"
    assert reason_of(failed(MESSAGE)) == told


def test_a_line_that_looks_like_an_exception_does_not_hide_the_one_before() -> None:
    assert "ValueError: no such model" in reason_of(failed("ValueError: no such model\nHint: name another"))


def test_what_is_no_traceback_is_said_whole() -> None:
    assert reason_of(failed("No GPU\nis free.", "")) == "Failed to update. No GPU is free."


def test_ray_is_not_imported_before_the_environment_that_it_reads_once_is_set() -> None:
    modules = "serve.cluster.deployments.ops, serve.cluster.drain, serve.cluster.launch"
    code = f"import sys, {modules}; print('ray' in sys.modules)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "False"


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


PROGRAM = """
import fcntl, os, signal, sys, termios, time
if sys.argv[1] == "terminal":
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from serve.cluster.reloader import reload_on_sighup

class FakeReloader:
    def outcome(self, asked, say):
        os.write(1, f"reloaded by {asked.actor}\\n".encode())

def stop(number, frame):
    os.write(1, b"stopped\\n")
    os._exit(0)

signal.signal(signal.SIGTERM, stop)
reload_on_sighup(FakeReloader())
os.write(1, b"ready\\n")
while True:
    # signal.pause() would miss one that comes just before it.
    time.sleep(0.1)
"""
RELOADED = b"reloaded by signal:SIGHUP\n"


@contextmanager
def begin(kind: str, stdin: int) -> Iterator[subprocess.Popen[bytes]]:
    program = [sys.executable, "-c", PROGRAM, kind]
    with subprocess.Popen(program, stdin=stdin, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_in_a_terminal_a_signal_reloads_and_its_end_stops() -> None:
    ours, theirs = pty.openpty()
    with begin("terminal", theirs) as process:
        os.close(theirs)
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGHUP)
        assert process.stdout.readline() == RELOADED
        os.close(ours)
        assert process.stdout.readline() == b"stopped\n"
        assert process.wait(20) == 0


def test_without_a_terminal_every_signal_reloads() -> None:
    with begin("none", subprocess.DEVNULL) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        for _ in range(2):
            process.send_signal(signal.SIGHUP)
            assert process.stdout.readline() == RELOADED


def application(**states: int) -> SimpleNamespace:
    return SimpleNamespace(deployments={"only": SimpleNamespace(replica_states=states)})


def test_replicas_are_counted_by_model_and_one_that_leaves_is_not_wanted() -> None:
    applications = {
        "model:alpha": application(RUNNING=1, STARTING=2),
        "model:beta": application(RUNNING=1, STOPPING=1),
        "model:idle": application(),
        "ingress": application(RUNNING=2),
    }
    assert counts_of(applications) == {"alpha": (1, 3), "beta": (1, 1), "idle": (0, 0)}


def test_the_replicas_of_both_generations_are_the_models() -> None:
    applications = {
        "compress:org/one": application(STOPPING=1),
        "compress:org/one@2": application(RUNNING=2),
        "model:beta": application(RUNNING=1),
        "model:beta@3": application(STARTING=1),
    }
    assert counts_of(applications) == {"org/one": (2, 2), "beta": (1, 2)}
