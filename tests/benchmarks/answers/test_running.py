"""A run writes what it has, and goes on from there."""

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.answers.arms import ARMS
from benchmarks.answers.asking import Refused
from benchmarks.answers.record import OtherRun, Record
from benchmarks.answers.running import Run
from tests.benchmarks.answers.made import CASE, Reply, reader, streamed

OF = {"model": "reader", "prompt": "plain"}
CASES = [replace(CASE, name=f"s/{at}") for at in range(4)]
FOR_EVER = float("inf")


def curie(asked: Mapping[str, Any]) -> httpx.Response:
    return streamed("Marie Curie")


def run(record: Record, reply: Reply = curie, until: float = FOR_EVER) -> Run:
    return Run(reader(reply), ARMS, record, until)


def test_each_case_is_asked_in_every_arm_and_only_the_first_are_alone(tmp_path: Path) -> None:
    record = Record.begin(tmp_path / "answers.jsonl", OF)
    assert list(run(record).over(CASES, alone=1, clients=3)) == CASES
    assert set(record.answers) == {(case.name, arm.name) for case in CASES for arm in ARMS}
    assert {key for key, each in record.answers.items() if each.is_alone} == {
        ("s/0", arm.name) for arm in ARMS
    }


def test_what_was_answered_before_a_run_was_cut_is_not_asked_again(tmp_path: Path) -> None:
    path, asked = tmp_path / "answers.jsonl", []

    def failing(body: Mapping[str, Any]) -> httpx.Response:
        asked.append(body)
        return curie(body) if len(asked) < 15 else httpx.Response(402, text="no money")

    with pytest.raises(Refused):
        list(run(Record.begin(path, OF), failing).over(CASES, alone=0, clients=1))
    with path.open("ab") as file:
        file.write(b'{"suite": "s", "ca')
    resumed = Record.resume(path, OF)
    assert len(resumed.answers) == 14
    list(run(resumed).over(CASES, alone=0, clients=2))
    again = Record.resume(path, OF)
    assert again.answers == resumed.answers and len(again.answers) == len(CASES) * len(ARMS)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert json.loads(lines[0]) == OF and len(lines) == 1 + len(again.answers)


def test_answers_of_another_model_or_prompt_are_not_mixed_with_these(tmp_path: Path) -> None:
    Record.begin(tmp_path / "answers.jsonl", OF)
    with pytest.raises(OtherRun, match='"prompt":"plain"'):
        Record.resume(tmp_path / "answers.jsonl", {**OF, "prompt": "twice"})


def test_a_run_without_resuming_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    list(run(Record.begin(path, OF)).over(CASES[:1], alone=0, clients=1))
    assert Record.begin(path, OF).answers == Record.resume(path, OF).answers == {}


def test_nothing_is_asked_after_the_time_is_up(tmp_path: Path) -> None:
    record = Record.begin(tmp_path / "answers.jsonl", OF)
    list(run(record, until=time.monotonic()).over(CASES, alone=1, clients=2))
    assert record.answers == {}
