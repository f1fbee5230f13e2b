"""The tickets and traces that are read by eye: whole, and with the facts that they are asked for."""

from __future__ import annotations

import json

import pytest

from benchmarks.quality.samples import ROOT, SAMPLES, Reading, Sample, load_samples, read

LISTED = load_samples(SAMPLES)


def test_there_are_ten_of_each_and_every_file_is_listed() -> None:
    files = sorted(path for path in SAMPLES.rglob("*.*") if path.parent != SAMPLES)
    assert files == sorted(sample.file for sample in LISTED)
    assert [sum(file.parent.name == kind for file in files) for kind in ("tickets", "traces")] == [10, 10]


@pytest.mark.parametrize("sample", LISTED, ids=lambda sample: sample.file.stem)
def test_a_samples_facts_stand_in_it(sample: Sample) -> None:
    whole = Reading(sample, sample.file.read_text("utf-8"), {})
    assert sample.facts and whole.lost == []


def test_what_is_lost_is_named_and_escapes_of_json_do_not_count() -> None:
    sample = Sample(SAMPLES / "a.json", "q", ("größer", "1 m"))
    reading = Reading(sample, json.dumps(["gr\u00f6\u00dfer"]), {})
    assert reading.lost == ["1 m"]


def test_a_sample_is_compressed_by_the_command_line() -> None:
    reading = read(LISTED[0], 0.3, checkout=ROOT)
    assert 0 < reading.receipt["compression_ratio"] <= 0.3
    assert f"| {len(LISTED[0].facts) - len(reading.lost)} of {len(LISTED[0].facts)} |" in reading.row()
