"""Counts of a process in its files, as a scrape shows them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from serve.metrics import counts
from serve.metrics.counts import ENGINES, Counts, EngineFamilies, open_replica_metrics
from serve.metrics.ops_port import CountedFiles
from tests.serve.metrics.readings import Readings, of_families

LABELS = {"model": "alpha", "replica": "0"}


def scraped(folder: Path) -> Readings:
    return of_families(CountedFiles(folder, keeps_ended=False).collect())


def exposed(folder: Path) -> str:
    registry = CollectorRegistry()
    registry.register(CountedFiles(folder, keeps_ended=False))
    return generate_latest(registry).decode()


def test_what_is_counted_reads_as_if_prometheus_client_had_counted_it(tmp_path: Path) -> None:
    ours = EngineFamilies(Counts(tmp_path, os.getpid(), {}))
    registry = CollectorRegistry()
    for make in (ours.counter, lambda *given: Counter(*given, registry=registry)):
        counter = make("vllm:prompt_tokens", "Tokens.", ["engine"])
        counter.labels("0").inc(3)
        counter.labels(engine="1").inc()
    for make in (ours.gauge, lambda *given: Gauge(*given, registry=registry)):
        gauge = make("vllm:running", "Running.", ["engine"])
        gauge.labels("0").set(2.5)
        gauge.labels("0").inc()
        gauge.labels("0").dec(2)
    bounds = [0.1, 1, 2.5, float("inf")]
    for make in (ours.histogram, lambda *given: Histogram(*given[:3], buckets=given[3], registry=registry)):
        histogram = make("vllm:seconds", "Seconds.", ["engine"], bounds)
        for value in (0.05, 0.1, 0.5, 2.5, 99):
            histogram.labels("0").observe(value)
    # Three tokens that left together: each had the same wait.
    ours.histogram("vllm:seconds", "Seconds.", ["engine"], bounds).labels("0").observe(0.5, 3)
    for _ in range(3):
        histogram.labels("0").observe(0.5)
    expected = {
        name: value for name, value in of_families(registry.collect()).items() if "_created" not in name
    }
    # A gauge's child of ours is made anew, at 0, by each call of `labels`.
    expected.pop('vllm:running{engine="0"}')
    found = scraped(tmp_path)
    assert found.pop('vllm:running{engine="0"}') == -2
    assert found == expected


def test_a_scrape_groups_a_family_of_several_replicas_under_one_name(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        for number, pid in enumerate((os.getpid(), other.pid)):
            file = Counts(tmp_path, pid, {"model": "alpha", "replica": str(number)})
            EngineFamilies(file).counter("vllm:generation_tokens", "Tokens.").labels().inc(number + 1)
        text = exposed(tmp_path)
        assert text.count("# TYPE vllm:generation_tokens_total counter") == 1
        (family,) = text_string_to_metric_families(text)
        assert {sample.labels["replica"]: sample.value for sample in family.samples} == {"0": 1, "1": 2}
        assert other.stdin is not None
        other.stdin.close()
        other.wait()
        # What has ended takes its series along, and leaves no file.
        assert 'replica="1"' not in exposed(tmp_path)
        assert {path.stem for path in tmp_path.iterdir()} == {str(os.getpid())}


def test_an_engine_that_is_started_again_counts_on_and_its_gauges_begin_at_zero(tmp_path: Path) -> None:
    families = EngineFamilies(Counts(tmp_path, os.getpid(), LABELS))
    for _ in range(2):
        families.counter("vllm:prompt_tokens", "").labels().inc(2)
        running = families.gauge("vllm:running", "").labels()
    running.inc()
    assert scraped(tmp_path) == {
        'vllm:prompt_tokens_total{model="alpha",replica="0"}': 4,
        'vllm:running{model="alpha",replica="0"}': 1,
    }


def test_what_has_no_room_is_not_shown_and_harms_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(counts, "MOST_VALUES", 6)
    families = EngineFamilies(Counts(tmp_path, os.getpid(), {}))
    families.histogram("second", "", buckets=[1, 2, 3]).labels().observe(1)
    gauge = families.gauge("first", "").labels()
    gauge.set(7)
    before = scraped(tmp_path)
    # With more buckets than there is room for anywhere, too.
    for buckets in ([1, 2, 3], range(2 * counts.SCRATCH_VALUES)):
        families.histogram("third", "", buckets=buckets).labels().observe(10_000)
    families.gauge("third_gauge", "").labels().set(5)
    assert scraped(tmp_path) == before and before["first"] == 7
    assert not any(name.startswith("third") for name in scraped(tmp_path))
    assert "third" in caplog.text


def test_a_line_that_is_being_written_is_left_for_the_next_scrape(tmp_path: Path) -> None:
    families = EngineFamilies(Counts(tmp_path, os.getpid(), {}))
    families.counter("first", "").labels().inc()
    with (tmp_path / f"{os.getpid()}.series").open("a") as names:
        names.write('["second", "cou')
    assert scraped(tmp_path) == {"first_total": 1}


def test_a_replica_shows_who_waits_for_a_turn_how_long_and_what_was_started_again(tmp_path: Path) -> None:
    by_model, of_turns = open_replica_metrics(tmp_path, ["alpha"])
    metrics = by_model["alpha"]
    assert of_turns is None
    for _ in range(4):
        metrics.wait()
    metrics.begin(0.002)
    metrics.begin(0.2)
    metrics.end()
    metrics.give_up()
    metrics.restart()
    found, labels = scraped(tmp_path / ENGINES), '{model="alpha",replica="0"}'
    assert found[f"pith_replica_requests_waiting{labels}"] == 1
    assert found[f"pith_replica_requests_running{labels}"] == 1
    assert found[f"pith_replica_queue_seconds_count{labels}"] == 2
    assert found[f"pith_replica_queue_seconds_sum{labels}"] == pytest.approx(0.202)
    assert found[f"pith_engine_restarts_total{labels}"] == 1


def test_a_replica_whose_models_take_turns_shows_each_by_its_name_and_which_is_awake(tmp_path: Path) -> None:
    by_model, of_turns = open_replica_metrics(tmp_path, ["alpha", "beta"])
    assert of_turns is not None
    for model, metrics in by_model.items():
        metrics.families.gauge("own", "", ["kind"]).labels(model).set(len(model))
    by_model["beta"].wait()
    of_turns.woke("alpha", 0.0)
    for change in (1, 1, -1):
        of_turns.wait("beta", change)
    of_turns.woke("beta", 3.0)
    found = scraped(tmp_path / ENGINES)
    alpha, beta = '{model="alpha",replica="0"}', '{model="beta",replica="0"}'
    assert found[f"pith_replica_requests_waiting{beta}"] == 1
    assert [found[f"pith_model_awake{labels}"] for labels in (alpha, beta)] == [0, 1]
    assert [found[f"pith_model_swap_seconds_count{labels}"] for labels in (alpha, beta)] == [0, 1]
    assert [found[f"pith_model_turn_requests_waiting{labels}"] for labels in (alpha, beta)] == [0, 1]
    assert found['own{kind="alpha",model="alpha",replica="0"}'] == 5


def test_without_a_folder_or_room_for_files_a_replica_works_uncounted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert open_replica_metrics(None, ["alpha"]) == ({}, None)
    (tmp_path / "file").write_text("")
    assert open_replica_metrics(tmp_path / "file", ["alpha"]) == ({}, None)
    assert "metrics are not shown" in caplog.text
