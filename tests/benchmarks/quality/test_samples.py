"""The tickets and traces that are read by eye: whole, and with the facts that they are asked for."""

from __future__ import annotations

import json
import re

import pytest

from benchmarks.quality.samples.page import blocks_of, filled, shown
from benchmarks.quality.samples.sample import ROOT, SAMPLES, Reading, Sample, load_samples, read

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
    assert reading.kept == f"{len(LISTED[0].facts) - len(reading.lost)} of {len(LISTED[0].facts)}"


def a_reading(output: str, **flags: str) -> Reading:
    sample = Sample(SAMPLES / "traces" / "03-airline.json", "q", ("SKY253", "4WQ150"))
    listed = [{"code": code, "severity": severity} for code, severity in flags.items()]
    return Reading(sample, output, {"original_tokens": 9, "risk_flags": listed})


def test_what_is_no_conversation_any_more_is_said() -> None:
    left = [{"role": "user", "content": "SKY253"}]
    assert a_reading(json.dumps(left)).kept == "1 of 2"
    assert a_reading('[{"content": "SKY253"}]').kept == "1 of 2, no conversation"


def test_the_page_gets_its_tables_and_outputs_and_keeps_its_words() -> None:
    page = "Words.\n<!-- begin table -->\nold\n<!-- end -->\n"
    page += "<!-- begin after traces/03-airline.json -->\n<!-- end -->\nMore."
    before = a_reading("[]", number_dropped="warning", input_too_short="info")
    after = a_reading(json.dumps([{"role": "user", "content": "SKY253\nsecond"}]), evidence_at_risk="warning")
    full = filled(page, blocks_of([before], [after]))
    assert full.startswith("Words.\n") and full.endswith("\nMore.") and "old" not in full
    assert "| `traces/03-airline.json` | 9 | 0 of 2 | 1 of 2 | evidence_at_risk |" in full
    assert "````text\nuser: SKY253\nsecond\n````" in full
    assert filled(full, blocks_of([before], [after])) == full


def test_a_long_output_is_cut_and_says_so() -> None:
    lines = shown(a_reading("x" * 400 + "\n" + "line\n" * 100)).splitlines()
    assert lines[1].endswith("(cut here)") and lines[-2].endswith("more lines)") and len(lines) < 70


def test_the_page_in_the_docs_shows_every_sample_and_no_block_is_empty() -> None:
    page = (ROOT / "docs" / "compression-examples.md").read_text("utf-8")
    assert all(f"\n| `{sample.name}` | " in page for sample in LISTED)
    readings = [Reading(sample, "x", {"original_tokens": 1, "risk_flags": []}) for sample in LISTED]
    blocks = blocks_of(readings, readings)
    names = re.findall(r"<!-- begin ([^\n]+) -->\n\n(?!<!--)", page)
    assert len(names) == page.count("<!-- begin") > 6 and set(names) <= set(blocks)
