"""The figures of `benchmarks.fairness`."""

from __future__ import annotations

import pytest

from benchmarks.fairness import Round, arguments, report


def test_what_both_have_together_is_compared_with_what_the_streams_have_alone() -> None:
    # In ten seconds the streams had 700 events and the other two replies of 100 tokens: 90 a second of 100.
    found = Round(beside_ms=[5000.0, 5000.0], stream_events=700, seconds=10.0, streams_alone=100.0)
    assert found.used(tokens=100) == pytest.approx(0.9)


def test_the_slowest_are_compared_as_well_as_the_median() -> None:
    found = Round(quiet_ms=[10.0] * 99 + [20.0], beside_ms=[10.0] * 99 + [40.0])
    assert found.ratio == 1 and found.ratio_p99 > 1


def test_the_report_names_both_tiers_and_both_figures() -> None:
    options = arguments(["--tier", "priority", "--streams-tier", "flex", "--tokens", "100"])
    rounds = [Round([10.0], [20.0], stream_events=900, seconds=1.0, streams_alone=1000.0)] * 3
    said = report(options, {}, rounds).markdown()
    assert "1024 tokens (flex) running" in said and "100 tokens (priority) one after the other" in said
    assert "2.00 (2.00 to 2.00); p99 2.00" in said and "1.00 (1.00 to 1.00) of what they have alone" in said
