"""What the ops port shows of processes, disk and versions, against what the system says."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from serve.metrics.machine import BuildInfo, ServerProcesses, StateFolder
from serve.processes.registry import enrol
from tests.serve.metrics.readings import named, of_families

# A process that has a child; the child keeps a file open and memory in use.
PARENT = """
import subprocess, sys
child = "f = open('/dev/null'); b = b'x' * 50_000_000; print('up', flush=True); input()"
process = subprocess.Popen([sys.executable, "-c", child], stdin=subprocess.PIPE)
sys.stdin.readline()
process.stdin.close()
process.wait()
print("alone", flush=True)
sys.stdin.readline()
"""


def of(name: str, process: str, model: str = "", replica: str = "0") -> str:
    return named(name, {"process": process, "model": model, "replica": replica})


def test_the_servers_own_process_is_shown_as_the_system_has_it(tmp_path: Path) -> None:
    own = psutil.Process()
    found = of_families(ServerProcesses(tmp_path).collect())
    cpu = own.cpu_times()
    assert found[of("process_cpu_seconds_total", "server")] == pytest.approx(cpu.user + cpu.system, abs=0.5)
    assert found[of("process_start_time_seconds", "server")] == own.create_time()
    assert found[of("process_resident_memory_bytes", "server")] == pytest.approx(
        own.memory_info().rss, rel=0.2
    )
    assert found[of("process_open_fds", "server")] == pytest.approx(own.num_fds(), abs=5)
    assert found[of("process_max_fds", "server")] >= found[of("process_open_fds", "server")]


def test_a_replica_and_what_it_has_started_are_shown_apart_and_no_time_is_lost_when_a_child_ends(
    tmp_path: Path,
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdin is not None and parent.stdout is not None
        assert parent.stdout.readline() == "up\n"
        enrol(tmp_path, "replica", parent.pid, model="alpha")
        collector = ServerProcesses(tmp_path)
        with_child = of_families(collector.collect())
        engine = "engine", "alpha"
        assert with_child[of("process_resident_memory_bytes", *engine)] > 50_000_000
        assert with_child[of("process_resident_memory_bytes", "replica", "alpha")] > 1_000_000
        assert with_child[of("process_open_fds", *engine)] >= 4
        parent.stdin.write("\n")
        parent.stdin.flush()
        assert parent.stdout.readline() == "alone\n"
        alone = of_families(collector.collect())
        assert alone[of("process_resident_memory_bytes", *engine)] == 0
        name = of("process_cpu_seconds_total", *engine)
        assert alone[name] >= with_child[name]
        parent.stdin.close()
    ended = of_families(collector.collect())
    assert not [name for name in ended if 'model="alpha"' in name]


def test_the_disk_of_the_servers_folder(tmp_path: Path) -> None:
    found = of_families(StateFolder(tmp_path).collect())
    usage = shutil.disk_usage(tmp_path)
    assert found["pith_state_dir_size_bytes"] == usage.total
    assert found["pith_state_dir_free_bytes"] == pytest.approx(usage.free, rel=0.05)
    assert list(StateFolder(tmp_path / "nothing").collect()) == []


def test_the_build_names_its_versions() -> None:
    (family,) = BuildInfo().collect()
    (sample,) = family.samples
    assert sample.value == 1
    assert set(sample.labels) == {"version", "commit", "vllm", "ray", "torch"}
    assert all(sample.labels[name] != "unknown" for name in ("ray", "torch", "vllm"))
