"""The ops port over the files of real processes, which count, end and are killed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from billing.ledger.spool import Spool
from billing.usage import UsageEvent
from serve.config.settings import Settings
from serve.metrics.counts import count_dropped_lines, metrics_folder, open_counts
from serve.metrics.ops_port import ops_port as ops_port_by
from serve.ops.app import open_ops
from tests.integration.running import free_port
from tests.serve.metrics.readings import Readings, of_text
from tests.serve.served import settings_document

ROOT = Path(__file__).resolve().parents[3]
CHATS = 'pith_chat_requests_total{model="alpha",outcome="completed"}'
IN_FLIGHT = 'pith_chat_requests_in_flight{model="alpha"}'
DURATIONS = 'pith_chat_request_duration_seconds_count{model="alpha"}'
REPLICAS = "pith_ingress_replicas"
# An HTTP process as far as metrics go: it ends so many chats, has one more in flight, and waits.
PROCESS = """
import sys
from serve.config.settings import Settings
from serve.metrics.background import PoolMetrics, TraceMetrics, UpkeepMetrics, WaitingMetrics, WebhookMetrics
from serve.metrics.charged_requests import ServiceMetrics
from serve.metrics.counts import count_dropped_lines, open_counts
counts = open_counts(Settings.model_validate_json(sys.argv[1]))
for make in (count_dropped_lines, TraceMetrics, UpkeepMetrics, WaitingMetrics, WebhookMetrics):
    make(counts)
PoolMetrics(counts, "m")
metrics = ServiceMetrics(counts, chat_models=["alpha"], compression_models=["m"])
for _ in range(int(sys.argv[2])):
    metrics.chat.begin("alpha").end()
metrics.chat.begin("alpha")
assert "prometheus_client" not in sys.modules
print("counts", flush=True)
sys.stdin.read()
"""
FILES = {"ended.series", "ended.values"}


class Colons(Collector):
    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("vllm:kv_cache_usage_perc", "As vLLM names it.", 0.5)


def ops_port(
    settings: Settings, *also: Collector, anew: bool = True
) -> AbstractContextManager[Callable[[], None]]:
    return ops_port_by(settings, open_ops, *also, anew=anew)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings.model_validate(settings_document(tmp_path, ops={"port": free_port()}))


@contextmanager
def process(settings: Settings, chats: int) -> Iterator[subprocess.Popen[str]]:
    running = subprocess.Popen(
        [
            sys.executable,
            "-c",
            PROCESS,
            settings.model_dump_json(exclude={"retrieval_models"}),
            str(chats),
        ],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline() == "counts\n"
            yield running
        finally:
            running.kill()


def scrape(settings: Settings) -> Readings:
    url = f"http://127.0.0.1:{settings.ops.port}/metrics"
    with urllib.request.urlopen(url, timeout=60) as reply:
        return of_text(reply.read().decode())


def test_one_scrape_adds_up_the_processes_and_keeps_what_a_killed_one_had_counted(settings: Settings) -> None:
    with ops_port(settings), process(settings, 2), process(settings, 3) as victim:
        both = scrape(settings)
        assert (both[CHATS], both[DURATIONS], both[IN_FLIGHT], both[REPLICAS]) == (5, 5, 2, 2)
        victim.kill()
        victim.wait()
        one = scrape(settings)
        assert (one[CHATS], one[DURATIONS], one[IN_FLIGHT], one[REPLICAS]) == (5, 5, 1, 1)
        with process(settings, 4):
            again = scrape(settings)
            assert (again[CHATS], again[DURATIONS], again[IN_FLIGHT], again[REPLICAS]) == (9, 9, 2, 2)


def test_a_service_without_a_process_has_gauges_at_zero(settings: Settings) -> None:
    with ops_port(settings):
        with process(settings, 1):
            scrape(settings)
        left = scrape(settings)
        assert (left[CHATS], left[IN_FLIGHT], left[REPLICAS]) == (1, 0, 0)


def test_restarts_do_not_pile_up_files_even_where_nobody_scrapes(settings: Settings) -> None:
    folder = metrics_folder(settings)
    assert folder is not None
    with ops_port(settings) as take_in_ended:
        for _ in range(2):
            with process(settings, 1):
                assert len(list(folder.glob("*.values"))) == 2
            take_in_ended()
            assert {path.name for path in folder.iterdir() if path.suffix in (".series", ".values")} == FILES
        assert scrape(settings)[CHATS] == 2


def test_a_process_counts_in_files_whose_blocks_are_reserved(settings: Settings) -> None:
    folder = metrics_folder(settings)
    assert folder is not None
    with ops_port(settings), process(settings, 1) as running:
        found = (folder / f"{running.pid}.values").stat()
        assert found.st_blocks * 512 >= found.st_size > 0


def test_a_process_that_cannot_make_its_files_counts_unseen_and_says_so(settings: Settings) -> None:
    settings.state_dir.mkdir(parents=True)
    (settings.state_dir / "metrics").write_text("a file where the folder should be")
    with process(settings, 1) as running:
        _, errors = running.communicate("")
    assert "this process's metrics are not shown" in errors


def test_names_with_colons_reach_prometheus_as_they_are(settings: Settings) -> None:
    """As vLLM's names have; Prometheus asks for OpenMetrics first."""
    asked = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
    url = f"http://127.0.0.1:{settings.ops.port}/metrics"
    with ops_port(settings, Colons()):
        request = urllib.request.Request(url, headers={"Accept": asked})
        with urllib.request.urlopen(request, timeout=60) as reply:
            assert "vllm:kv_cache_usage_perc" in of_text(reply.read().decode())


def test_what_an_earlier_server_counted_is_gone_and_nothing_is_left_behind(settings: Settings) -> None:
    folder = metrics_folder(settings)
    assert folder is not None
    folder.mkdir(parents=True)
    (folder / "1.series").write_bytes(b"left by a server that was killed")
    with ops_port(settings):
        assert {path.name for path in folder.iterdir()} == FILES
    assert not folder.exists()


def test_two_servers_with_one_state_folder_count_apart(settings: Settings) -> None:
    other = settings.model_copy(update={"ops": settings.ops.model_copy(update={"port": 1})})
    assert metrics_folder(settings) != metrics_folder(other)


def test_port_0_is_no_port_and_no_folder(settings: Settings) -> None:
    off = settings.model_copy(update={"ops": settings.ops.model_copy(update={"port": 0})})
    with ops_port(off) as take_in_ended:
        take_in_ended()
    assert metrics_folder(off) is None and not settings.state_dir.exists()


def test_the_port_is_free_again_after_the_block(settings: Settings) -> None:
    with ops_port(settings):
        with pytest.raises(OSError, match="in use"), ops_port(settings):
            pass
        # Who could not have the port has not emptied the folder of who has it.
        assert metrics_folder(settings).is_dir()  # type: ignore[union-attr]
    with pytest.raises(urllib.error.URLError):
        scrape(settings)
    with ops_port(settings):
        scrape(settings)


async def test_the_spool_is_counted_when_it_is_asked_for(settings: Settings) -> None:
    with ops_port(settings):
        assert await counted_spool(settings) == (0, 0)
        assert not settings.billing.spool_path.exists()
        spool = Spool(settings.billing.spool_path)
        for number in range(3):
            await spool.append(event(f"event-{number}"))
        await spool.set_aside(["event-1"], "refused")
        assert await counted_spool(settings) == (2, 1)
        await spool.close()


async def test_a_spool_that_cannot_be_read_takes_no_other_metric_with_it(settings: Settings) -> None:
    settings.billing.spool_path.write_bytes(b"no database at all" * 100)
    with ops_port(settings), process(settings, 1):
        readings = await in_a_thread(settings)
    assert readings[CHATS] == 1 and "pith_spool_waiting_events" not in readings


async def counted_spool(settings: Settings) -> tuple[float, float]:
    readings = await in_a_thread(settings)
    return readings["pith_spool_waiting_events"], readings["pith_spool_refused_events"]


async def in_a_thread(settings: Settings) -> Readings:
    return await asyncio.to_thread(scrape, settings)


def event(event_id: str) -> UsageEvent:
    now = datetime(2026, 11, 20, tzinfo=UTC)
    return UsageEvent(
        event_id=event_id,
        request_id="r",
        workspace_id="w",
        project_id="p",
        key_id="k",
        model_id="alpha",
        pricing_version=1,
        prompt_tokens=1,
        completion_tokens=1,
        cached_tokens=0,
        subtotal_nano_usd=1,
        minimum_applied=False,
        cost_nano_usd=1,
        outcome="completed",
        stream=False,
        created_at=now,
        settled_at=now,
    )


def test_counts_outlive_an_ops_port_that_is_not_the_first_of_its_server(settings: Settings) -> None:
    """Where Ray starts it and starts it again, beside processes that go on."""
    with process(settings, 2):
        with ops_port(settings, anew=False):
            assert scrape(settings)[CHATS] == 2
            with process(settings, 3):
                assert scrape(settings)[CHATS] == 5
            assert scrape(settings)[CHATS] == 5
        with ops_port(settings, anew=False):
            again = scrape(settings)
            assert (again[CHATS], again[REPLICAS]) == (5, 1)


def test_lines_that_the_relay_lost_are_in_one_sum_with_those_of_http_processes(settings: Settings) -> None:
    with ops_port(settings), process(settings, chats=0):
        lost = count_dropped_lines(open_counts(settings, None))
        assert scrape(settings)["pith_log_lines_dropped_total"] == 0
        lost(2)
        lost(1)
        assert scrape(settings)["pith_log_lines_dropped_total"] == 3
    lost(1)
