"""The contexts are built alike every time, and hold what they are said to hold."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from benchmarks.evaluation.case import Task
from benchmarks.evaluation.datasets import Meeting, MeetingQuery, Paragraph, Passage, Records
from benchmarks.evaluation.metrics import holds_answer, pair_kept
from benchmarks.evaluation.suites import catalogue, plain
from benchmarks.quality.scoring import judge

PASSAGES = [
    Passage(
        f"what is the colour of fruit {n}",
        (f"shade{n}",),
        f"Fruit {n}",
        f"Fruit {n} has the colour shade{n}.",
    )
    for n in range(40)
]


def test_the_gold_passage_stands_among_hard_ones_that_hold_no_answer() -> None:
    case = next(plain.passage_cases(PASSAGES))
    assert len(case.documents) == plain.DOCUMENTS
    assert case.gold in case.documents
    for start, end in case.documents:
        assert holds_answer(case.context[start:end], case.answers) == ((start, end) == case.gold)


def test_contexts_are_the_same_every_time_and_their_golds_lie_in_many_places() -> None:
    first, again = list(plain.passage_cases(PASSAGES)), list(plain.passage_cases(PASSAGES))
    assert first == again
    assert len({case.documents.index(case.gold) for case in first if case.gold}) > 5


def test_evidence_is_the_turns_of_the_spans_and_spans_beyond_the_end_are_cut() -> None:
    turns = tuple((f"S{n}", f"turn number {n}") for n in range(10))
    meeting = Meeting(turns, (MeetingQuery("q", ((2, 3), (9, 30))),))
    case = next(plain.meeting_cases([meeting], "qmsum_x", is_held_out=True))
    assert [case.context[slice(*span)] for span in case.evidence] == [
        f"S{n}: turn number {n}" for n in (2, 3, 9)
    ]


def test_a_question_is_asked_of_ten_paragraphs_one_of_which_is_its_own() -> None:
    rows = [Paragraph(f"Paragraph {n} says {n}.", ((f"what says {n}?", str(n)),)) for n in range(25)]
    cases = list(plain.paragraph_cases(rows, "xquad_en"))
    assert len(cases) == 25
    assert [len(case.documents) for case in cases] == [10] * 20 + [5] * 5
    assert all(case.gold and case.answers[0] in case.context[slice(*case.gold)] for case in cases)


def test_records_become_json_that_gives_the_key_its_value() -> None:
    row = Records(tuple((f"k{n}", f'v"{n}') for n in range(75)), "k40", 'v"40')
    case = next(plain.record_cases([row], "kv_75"))
    assert json.loads(case.context) == dict(row.pairs)
    assert pair_kept(case.context, *case.answers)
    assert json.loads("{" + case.context[slice(*case.documents[40])] + "}") == {"k40": 'v"40'}


def test_a_folder_without_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="holds no nq"):
        catalogue.load(tmp_path)


def test_any_subset_of_the_files_is_a_folder(tmp_path: Path) -> None:
    given = Path(__file__).parents[3].joinpath("../shared/eval/xquad_de.jsonl.gz").resolve()
    if not given.is_file():
        pytest.skip("no evaluation data at ../shared/eval")
    (tmp_path / "kv_1.jsonl.gz").touch()
    without_files = catalogue.makers(tmp_path).keys() - {"kv_1"}
    (tmp_path / "kv_1.jsonl.gz").unlink()
    shutil.copy(given, tmp_path / "xquad_hi.jsonl.gz")
    assert catalogue.makers(tmp_path).keys() - without_files == {"xquad_hi"}
    assert len(catalogue.load(tmp_path, ["xquad_hi"])["xquad_hi"]) == 1190


def test_logs_need_no_file_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "kv_1.jsonl.gz").touch()
    found = catalogue.load(tmp_path, ["logs", "logs_held_out"])
    assert {case.is_held_out for case in found["logs"]} == {False}
    assert {case.is_held_out for case in found["logs_held_out"]} == {True}
    for case in found["logs_held_out"]:
        whole = judge(Task(case, 0.1), "whole", case.context)
        assert whole.measures == {"kinds": 1.0, "all kinds": 1.0}
        one_of_each = "\n".join(case.context[slice(*need.spans[-1])] for need in case.needs)
        assert judge(Task(case, 0.1), "one of each", one_of_each).has_evidence
        assert not judge(Task(case, 0.1), "none", "").has_evidence
