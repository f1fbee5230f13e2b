"""Processes of a server: their setup, their numbers, their folder, and their end with it."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from serve.processes.process_setup import prepare_interpreter
from serve.processes.registry import Member, enrol, members
from serve.processes.run_folder import teller, told


def test_a_thread_that_computes_lets_others_go_on_ten_times_as_often_as_usual() -> None:
    usual = sys.getswitchinterval()
    try:
        prepare_interpreter()
        assert sys.getswitchinterval() <= usual / 10
        assert gc.get_freeze_count() > 0
    finally:
        sys.setswitchinterval(usual)
        gc.unfreeze()


SCRIPT = textwrap.dedent(
    """
    import subprocess, sys, threading, time
    import psutil
    from serve.processes.process_setup import adopt_orphans, reap_orphans, children_of_this_process, stop_descendants

    def until(condition):
        deadline = time.monotonic() + 50
        while not condition():
            assert time.monotonic() < deadline
            threading.Event().wait(0.02)

    def children(status=None):
        return [c for c in psutil.Process().children() if status is None or c.status() == status]

    adopt_orphans()
    # A parent that leaves a child behind, as a crashed engine leaves its worker.
    sleeper = "import time; time.sleep(600)"
    parent = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1]])"
    subprocess.run([sys.executable, "-c", parent, sleeper], check=True)
    until(lambda: len(children()) == 1)
    orphan = children()[0]
    orphan.kill()
    until(lambda: children(psutil.STATUS_ZOMBIE))
    reap_orphans(started=())
    assert not children(), "the orphan was adopted and not reaped"
    subprocess.run([sys.executable, "-c", parent, sleeper], check=True)
    until(lambda: len(children()) == 1)
    stop_descendants()
    assert not [c for c in children() if c.status() != psutil.STATUS_ZOMBIE], "the orphan outlived the stop"
    """
)


def test_orphans_are_adopted_reaped_and_stopped() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


@contextmanager
def another() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        assert process.stdin is not None
        process.stdin.close()


def test_processes_of_one_kind_are_numbered_and_a_number_is_free_once_its_process_has_ended(
    tmp_path: Path,
) -> None:
    assert members(tmp_path) == []
    with another() as kept:
        assert enrol(tmp_path, "ingress", kept).number == 0
        with another() as ending:
            assert enrol(tmp_path, "ingress", ending).number == 1
            assert enrol(tmp_path, "replica", os.getpid(), model="alpha").number == 0
        with another() as next_one:
            assert enrol(tmp_path, "ingress", next_one).number == 1
            assert {member.pid for member in members(tmp_path)} == {kept, next_one, os.getpid()}


def test_who_enrols_again_keeps_its_number(tmp_path: Path) -> None:
    first = enrol(tmp_path, "ingress", os.getpid())
    assert enrol(tmp_path, "ingress", os.getpid()) == first
    assert members(tmp_path) == [first] and first.is_running


def test_another_process_with_the_id_of_one_that_ended_is_not_taken_for_it(tmp_path: Path) -> None:
    member = enrol(tmp_path, "ingress", os.getpid())
    earlier = Member(member.role, member.model, member.number, member.pid, member.started - 60)
    assert not earlier.is_running


def test_the_last_step_that_was_told_is_read(tmp_path: Path) -> None:
    tell = teller(tmp_path, "org/model")
    tell("importing vLLM")
    tell("starting the engine")
    assert told(tmp_path, "org/model") == "starting the engine"
    assert told(tmp_path, "another") == ""


def test_on_another_machine_nothing_is_told() -> None:
    teller(None, "model")("importing vLLM")
    assert told(None, "model") == ""


def test_a_folder_that_cannot_be_written_does_not_end_the_start(tmp_path: Path) -> None:
    (tmp_path / "steps").write_text("a file is in its place")
    teller(tmp_path, "model")("importing vLLM")
    assert told(tmp_path, "model") == ""
