"""Metrics of processes, disk and versions against the system's own, and of the ledger: never waited for."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
from prometheus_client.core import GaugeMetricFamily, Metric

from billing.books.usage_report import UsageSum
from billing.store.migration import upgrade
from serve.metrics import ledger_metrics
from serve.metrics.ledger_metrics import LedgerMetrics, Reading, tenant_families
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


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_ledger_shows_its_numbers_and_whether_it_answers(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    asyncio.run(upgrade(url))
    found = of_families(LedgerMetrics(url, tenants=2).collect())
    assert found["pith_ledger_up"] == 1
    assert found['pith_batch_lines{state="waiting"}'] == found['pith_batches{status="in_progress"}'] == 0
    assert found['pith_workspaces_spent{percent="80"}'] == found["pith_workspaces_limited"] == 0
    assert found['pith_tenant_month_usd{workspace="other"}'] == 0


def test_no_metric_names_a_workspace_unless_that_was_asked_for(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    asyncio.run(upgrade(url))
    found = of_families(LedgerMetrics(url, tenants=0).collect())
    assert not [name for name in found if "workspace=" in name]


def test_while_the_ledger_is_away_its_numbers_are_missing_and_it_is_said_to_be_down(tmp_path: Path) -> None:
    found = of_families(LedgerMetrics(f"sqlite:///{tmp_path}/no/folder.db", tenants=5).collect())
    assert found == {"pith_ledger_up": 0}


def test_it_is_asked_again_only_once_its_answer_is_old() -> None:
    clock, asked = Clock(), 0

    def read() -> list[Metric]:
        nonlocal asked
        asked += 1
        return [GaugeMetricFamily("asked", "", asked)]

    reading = Reading(read, 15, clock)
    for now, expected in ((0, 1), (14, 1), (15, 2), (29, 2)):
        clock.now = now
        reading.begin()
        (family,) = reading.found() or ()
        assert family.samples[0].value == expected


def test_a_ledger_that_hangs_keeps_its_last_numbers_for_a_while_and_is_asked_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ledger_metrics, "PATIENCE_S", 0.01)
    clock, hangs, asked = Clock(), threading.Event(), 0
    hangs.set()

    def read() -> list[Metric]:
        nonlocal asked
        asked += 1
        hangs.wait()
        return []

    reading = Reading(read, 15, clock)
    reading.begin()
    assert reading.found() == []
    hangs.clear()
    clock.now = 20
    reading.begin()
    assert reading.found() == []
    clock.now = 40
    reading.begin()
    assert reading.found() is None and asked == 2
    hangs.set()


def test_a_customer_called_other_is_added_to_the_others() -> None:
    line = UsageSum({}, 1, 10, 5, 0, 2 * 10**9)
    found = of_families(tenant_families({"acme": line, "other": line}, line))
    assert found['pith_tenant_month_usd{workspace="acme"}'] == 2
    assert found['pith_tenant_month_usd{workspace="other"}'] == 4
    assert found['pith_tenant_month_tokens{kind="prompt",workspace="other"}'] == 20
