"""The suites that are made from passages: contexts hold their evidence, alike every time, and outputs are judged."""

from __future__ import annotations

import json

import pytest

from benchmarks.evaluation.case import Case, Task
from benchmarks.evaluation.datasets import Passage
from benchmarks.evaluation.suites import dialogues, hops, made
from benchmarks.evaluation.suites.families import family_of
from benchmarks.evaluation.suites.quizzes import evidence_of, quizzes, sentences
from benchmarks.evaluation.suites.traces import is_conversation
from benchmarks.quality.scoring import judge

ROWS = [
    Passage(
        f"who wrote opera {n}", (f"Compos\u00e9r{n}x",), f"Opera {n}",
        f"Opera {n} is old. It has \"three\" acts.  Compos\u00e9r{n}x wrote it in May {n}. Many like it.",
    )
    for n in range(80)
]  # fmt: skip
MAKERS = {
    "dialogues_nq": dialogues.passage_cases,
    "papers_nq": made.paper_cases,
    "tickets_nq": made.ticket_cases,
    "chats_nq_json": made.chat_cases,
}


def made_of(suite: str) -> list[Case]:
    return list(MAKERS[suite](ROWS, suite))


def read(case: Case) -> str:
    """The slice of the evidence, as JSON would give it where the context is JSON."""
    text = case.context[slice(*case.evidence[0])]
    while case.suite.endswith("json") and "\\" in text:
        text = json.loads(f'"{text}"')
    return text


@pytest.mark.parametrize("suite", MAKERS)
def test_a_context_holds_its_evidence_once_and_the_whole_of_it_keeps_everything(suite: str) -> None:
    cases = made_of(suite)
    assert len(cases) == len(ROWS)
    assert len({case.name for case in cases}) == len(cases)
    for case in cases:
        assert len(case.evidence) == 1
        assert read(case) == case.needs[0].text and case.answers[0] in case.needs[0].text
        assert set(judge(Task(case, 0.25), "whole", case.context).measures.values()) == {1.0}
        assert set(judge(Task(case, 0.25), "none", "").measures.values()) == {0.0}


@pytest.mark.parametrize("suite", MAKERS)
def test_contexts_are_the_same_every_time_and_long(suite: str) -> None:
    cases = made_of(suite)
    assert cases == made_of(suite)
    assert min(len(case.context) for case in cases) > 10 * len(ROWS[0].text)
    assert 0 < sum(case.is_held_out for case in cases) < len(cases) / 2


def test_an_answer_without_its_sentence_is_half_of_it() -> None:
    case = made_of("papers_nq")[0]
    assert judge(Task(case, 0.25), "x", case.answers[0]).measures == {"answer": 1.0, "sentence": 0.0}


def test_chats_are_valid_conversations_and_end_with_the_question() -> None:
    for case in made_of("chats_nq_json"):
        assert is_conversation(case.context)
        assert json.loads(case.context)[-1] == {"role": "user", "content": case.query}


def test_a_dialogue_has_two_speakers_on_dated_days() -> None:
    contexts = [case.context for case in made_of("dialogues_nq")]
    assert all("2023" in context or "2024" in context for context in contexts)
    for context in contexts:
        names = [name for name in dialogues.NAMES if f"{name}: " in context or f'{name} said, "' in context]
        assert len(names) == 2


def test_evidence_of_several_hops_is_turns_of_one_dialogue() -> None:
    def document(n: int) -> hops.Document:
        return hops.Document(f"City {n}", f"City {n} is old. Mayor {n} rules City {n}. It is big.", False)

    rows = [
        hops.HopRow(
            f"Question {n}?", (f"Mayor {n}1",), tuple(document(n * 10 + at) for at in range(5)),
            (f"City {n * 10} is old.", f"Mayor {n * 10 + 1} rules City {n * 10 + 1}."),
        )
        for n in range(1, 7)
    ]  # fmt: skip
    cases = list(dialogues.hop_cases(rows, "dialogues_x"))
    assert len(cases) == 6
    for case, row in zip(cases, rows, strict=True):
        assert sorted(case.context[slice(*span)] for span in case.evidence) == sorted(row.needed)
        half = judge(Task(case, 0.1), "x", f"{row.answers[0]}\n{row.needed[0]}")
        assert half.measures == {"answer": 1.0, "turns": 0.5, "all turns": 0.0}
        assert not half.has_evidence


def test_sentences_end_at_marks_before_capitals_and_evidence_is_the_first_that_answers() -> None:
    assert sentences("One is 1.5 m.  Two (is) it? Three.") == ["One is 1.5 m.", "Two (is) it?", "Three."]
    assert sentences("") == []
    assert evidence_of(ROWS[3]) == "Compos\u00e9r3x wrote it in May 3."
    assert evidence_of(Passage("q", ("none",), "t", "Nothing here.")) == ""


def test_no_other_passage_of_a_quiz_holds_an_answer() -> None:
    for quiz in quizzes(ROWS, "x", 20):
        assert len(quiz.passages) == 20
        assert [quiz.gold.answers[0] in passage.text for passage in quiz.passages].count(True) == 1


def test_a_turn_of_a_meeting_counts_where_half_of_it_is_there() -> None:
    context = "A: one two three four\nB: five six\nC: seven eight nine ten"
    case = Case("qmsum_x", "m", "q", context, (), evidence=((0, 21), (34, len(context))))
    measures = family_of("qmsum_x").measure(case, "A: one two\nC: seven")
    assert measures == {"evidence": pytest.approx(7 / 12), "turns": 1.0}
    assert family_of("qmsum_x").measure(case, "A: one two")["turns"] == 0.5
