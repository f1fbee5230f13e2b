"""Questions of several hops: how their contexts are built, and when their evidence counts as kept."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.evaluation.case import Case, Task
from benchmarks.evaluation.suites import hops
from benchmarks.quality.scoring import judge

SENTENCES = {
    "question": "Where was the builder of Tower A born?",
    "answer": "Lake Town",
    "type": "bridge",
    "documents": [
        {"title": "Tower A", "sentences": ["Tower A is old.", " It was built by Ann Lee."]},
        {"title": "Tower B", "sentences": ["Tower B is new."]},
        {"title": "Ann Lee", "sentences": ["Ann Lee was born in Lake Town.", "", ' She liked "rowing".']},
    ],
    "evidence": [" It was built by Ann Lee.", "Ann Lee was born in Lake Town."],
}
HOPS = {
    "question": "What is the seat of the county where Van Hook lies?",
    "answers": ["Stanley", "Stanley City"],
    "hop_answers": ["Mountrail  County", "Stanley"],
    "documents": [
        {"title": "Other", "text": "Stanley is a name.", "supports": False},
        {"title": "Van Hook", "text": "Van Hook lies in Mountrail County.", "supports": True},
        {"title": "Mountrail County", "text": "Its seat is Stanley.", "supports": True},
    ],
}


def case_of(row: dict[str, Any], *, has_titles: bool = True) -> Case:
    parsed = hops.answer_row(row) if "hop_answers" in row else hops.sentence_row(row)
    suite = "musique_dev" if "hop_answers" in row else "hotpot_dev"
    return next(hops.cases([parsed], suite, has_titles=has_titles))


def test_documents_stand_in_the_order_of_the_file_under_their_titles() -> None:
    case = case_of(SENTENCES)
    assert case.context == (
        "Tower A\nTower A is old. It was built by Ann Lee.\n\nTower B\nTower B is new.\n\n"
        'Ann Lee\nAnn Lee was born in Lake Town. She liked "rowing".'
    )
    assert [case.context[slice(*span)].split("\n")[0] for span in case.documents] == [
        "Tower A", "Tower B", "Ann Lee"
    ]  # fmt: skip


def test_without_titles_the_texts_alone_stand() -> None:
    case = case_of(SENTENCES, has_titles=False)
    assert case.context.startswith(
        "Tower A is old. It was built by Ann Lee.\n\nTower B is new.\n\nAnn Lee was"
    )
    assert [case.context[slice(*span)] for span in case.evidence] == [
        "It was built by Ann Lee", "Ann Lee was born in Lake Town"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("output", "answer", "all_evidence"),
    [
        ("It was built by Ann Lee. Ann Lee was born in Lake Town.", 1, 1),
        ("it was BUILT by Ann Lee\nAnn Lee was born in the Lake-Town", 0, 0),
        ("Ann Lee was born in Lake Town.", 1, 0),
        ("It was built by Ann Lee.", 0, 0),
        ("", 0, 0),
    ],
)
def test_all_evidence_is_every_sentence_on_normalised_text(
    output: str, answer: float, all_evidence: float
) -> None:
    outcome = judge(Task(case_of(SENTENCES), 0.25), "pith", output)
    assert outcome.measures == {"answer": answer, "all evidence": all_evidence}
    assert outcome.has_evidence == bool(all_evidence)


@pytest.mark.parametrize("answer", ["yes", "No", "Tower A", "the builder"])
def test_an_answer_that_tells_nothing_is_not_judged(answer: str) -> None:
    case = case_of(SENTENCES | {"answer": answer})
    assert judge(Task(case, 0.25), "pith", case.context).measures == {"all evidence": 1.0}


def test_the_answers_of_hops_are_sought_in_the_documents_that_support_them() -> None:
    case = case_of(HOPS)
    county, seat = case.needs
    assert [case.context[slice(*span)] for span in county.spans] == ["Mountrail County", "Mountrail County"]
    assert [case.context[start - 12 : end] for start, end in seat.spans] == ["Its seat is Stanley"]
    assert judge(Task(case, 0.5), "pith", "Mountrail County. Its seat is Stanley").has_evidence
    assert judge(Task(case, 0.5), "pith", "Stanley").measures == {"answer": 1.0, "all evidence": 0.0}


def test_what_is_held_out_hangs_on_the_question_alone() -> None:
    rows = [SENTENCES | {"question": f"Question {number}?"} for number in range(200)]
    titled = [case_of(row).is_held_out for row in rows]
    assert titled == [case_of(row, has_titles=False).is_held_out for row in rows]
    assert 20 < sum(titled) < 60
