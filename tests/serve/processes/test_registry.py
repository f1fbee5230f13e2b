"""The numbers of a server's processes: few, and taken over by who comes next."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from serve.processes.registry import Member, enrol, members


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
