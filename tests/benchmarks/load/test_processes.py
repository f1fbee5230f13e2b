"""That the processes of a server are found, counted by role and told apart."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial

import psutil
import pytest

from benchmarks.load.processes import GENERATOR, Cpu, held, marked, role_of, tree

VARIABLE = "PITH_TEST_MARK"
WORK = """
import os, sys
while os.times().user < 0.3: pass
print('worked', flush=True)
os.read(0, 1)
os.execvp('cat', ['VLLM::Worker'])
"""


@pytest.fixture
def worker() -> Iterator[subprocess.Popen[str]]:
    """A process that uses 0.3 s of CPU and then waits; its command line is like vLLM's."""
    with subprocess.Popen(
        [sys.executable, "-c", WORK, "VLLM::EngineCore"],
        env=os.environ | {VARIABLE: "ours"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        yield process
        process.kill()


def test_cpu_seconds_are_counted_by_role(worker: subprocess.Popen[str]) -> None:
    cpu = Cpu(partial(tree, worker.pid))
    assert worker.stdout is not None and worker.stdout.readline() == "worked\n"
    assert cpu.between({}, cpu.seconds())["vLLM engine core"] >= 0.3


def test_a_process_that_takes_another_title_is_not_counted_from_its_start(
    worker: subprocess.Popen[str],
) -> None:
    assert worker.stdin is not None and worker.stdout is not None
    assert worker.stdout.readline() == "worked\n"
    cpu = Cpu(partial(tree, worker.pid))
    before = cpu.seconds()
    worker.stdin.write("1it has another title\n")
    worker.stdin.flush()
    assert worker.stdout.readline() == "it has another title\n"
    used = cpu.between(before, cpu.seconds())
    assert used["vLLM worker"] < 0.3
    assert "vLLM engine core" not in used


def test_this_process_is_counted_once_also_where_it_is_in_the_servers_tree() -> None:
    seconds = Cpu(partial(tree, os.getpid())).seconds()
    # Another test may have left a helper process of the interpreter's.
    assert [role for process, (role, _) in seconds.items() if process.pid == os.getpid()] == [GENERATOR]


def test_processes_are_found_by_their_tree_and_by_what_their_environment_says(
    worker: subprocess.Popen[str],
) -> None:
    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True
    )
    assert [process.pid for process in marked(VARIABLE, "ours", int(gone.stdout))] == [worker.pid]
    assert marked(VARIABLE, "another's", int(gone.stdout)) == []
    assert [process.pid for process in marked(VARIABLE, "another's", worker.pid)] == [worker.pid]


def test_memory_and_files_of_each_process_are_read(worker: subprocess.Popen[str]) -> None:
    [one] = held(tree(worker.pid))
    assert (one.pid, one.role) == (worker.pid, "vLLM engine core")
    assert one.memory_mib > 1
    assert one.open_files >= 3
    assert one.connections == 0
    assert role_of(psutil.Process(worker.pid)) == "vLLM engine core"


def test_a_process_that_has_gone_is_left_out(worker: subprocess.Popen[str]) -> None:
    processes = tree(worker.pid)
    worker.kill()
    worker.wait()
    assert held(processes) == []


def test_connections_to_this_program_are_not_the_servers() -> None:
    [before] = held([psutil.Process()])
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as ours,
        server.accept()[0] as theirs,
    ):
        [during] = held([psutil.Process()])
        assert ours.getpeername() == theirs.getsockname()
    # The listening socket alone.
    assert during.connections == before.connections + 1
    assert during.open_files == before.open_files
