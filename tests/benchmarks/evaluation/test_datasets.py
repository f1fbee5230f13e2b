"""Rows of the evaluation files, and what is said of a bad one."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.evaluation import datasets


def written(path: Path, rows: list[Any]) -> Path:
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    return path


def test_a_row_of_each_kind_is_read(tmp_path: Path) -> None:
    passage = {"question": "q", "answers": ["a"], "title": "t", "text": "x"}
    turns = [{"speaker": "A", "content": "hi"}]
    queries = [{"query": "q", "answer": "a", "relevant_text_span": [["0", "0"]]}]
    meeting = {"meeting_transcripts": turns, "specific_query_list": queries}
    paragraph = {"context": "c", "qas": [{"question": "q", "answer": "a"}]}
    records = {"ordered_kv_records": [["k", "v"]], "key": "k", "value": "v"}
    assert datasets.read(written(tmp_path / "a.gz", [passage]), datasets.passage) == [
        datasets.Passage("q", ("a",), "t", "x")
    ]
    assert datasets.read(written(tmp_path / "b.gz", [meeting]), datasets.meeting)[0].queries[0].spans == (
        (0, 0),
    )
    assert datasets.read(written(tmp_path / "c.gz", [paragraph]), datasets.paragraph)[0].questions == (
        ("q", "a"),
    )
    assert datasets.read(written(tmp_path / "d.gz", [records]), datasets.records)[0].pairs == (("k", "v"),)


def test_a_bad_row_is_named_by_file_and_line(tmp_path: Path) -> None:
    good = {"context": "c", "qas": []}
    path = written(tmp_path / "xquad_en.jsonl.gz", [good, {"qas": []}])
    with pytest.raises(datasets.BadRow, match=r"xquad_en\.jsonl\.gz, line 2: KeyError: 'context'"):
        datasets.read(path, datasets.paragraph)


def test_about_a_fifth_of_the_rows_is_held_out_and_always_the_same() -> None:
    held = [datasets.is_held_out(f"row {number}") for number in range(2000)]
    assert 0.15 < sum(held) / len(held) < 0.25
    assert held == [datasets.is_held_out(f"row {number}") for number in range(2000)]
