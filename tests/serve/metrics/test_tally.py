"""Many values at once are in a histogram as each by itself would be."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Histogram

from serve.metrics.charged_requests import Tally
from tests.serve.metrics.readings import of_registry

BOUNDS = (0.001, 0.01, 0.1)


def test_what_was_gathered_reads_as_if_each_value_had_been_observed() -> None:
    one_by_one, gathered = CollectorRegistry(), CollectorRegistry()
    histogram = Histogram("seconds", "", ["model"], registry=one_by_one, buckets=BOUNDS).labels("m")
    tally = Tally(Histogram("seconds", "", ["model"], registry=gathered, buckets=BOUNDS).labels("m"), BOUNDS)
    for value in (0.0005, 0.001, 0.0011, 0.05, 0.05, 0.1, 7.0):
        histogram.observe(value)
    tally.observe(0.0005)
    tally.observe(0.001)
    tally.add_up()
    tally.observe(0.0011)
    tally.observe(0.05, 2)
    tally.observe(0.1)
    tally.observe(7.0)
    assert of_registry(gathered)['seconds_count{model="m"}'] == 2
    for _ in range(2):
        tally.add_up()
    assert of_registry(gathered) == of_registry(one_by_one)
