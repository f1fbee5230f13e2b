"""What each arm sends of a context."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.answers.arms import ARMS, COMPARED, WHOLE, Arm, UnknownArm, arms_of, body, gold_of
from benchmarks.answers.prompts import PROMPTS, Prompt
from benchmarks.evaluation.case import Case
from benchmarks.evaluation.metrics import tokens
from tests.benchmarks.answers.made import CASE, CONTEXT

BY_NAME = {arm.name: arm for arm in ARMS}
PLAIN = Prompt("{}")


def parts(arm: Arm, case: Case = CASE) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = body(case, arm, PLAIN, None)["messages"][-1]["content"]
    return found


def test_only_an_arm_with_a_size_lets_the_context_be_compressed() -> None:
    for arm in ARMS:
        asked = body(CASE, arm, PLAIN, "reader")
        assert (
            ("compression" in asked)
            == any(part.get("compress") for part in parts(arm))
            == bool(arm.compression)
        )
        assert asked["model"] == "reader" and asked["temperature"] == 0
        assert parts(arm)[-1]["text"] == CASE.query


def test_an_arm_has_the_whole_context_what_answers_or_none() -> None:
    assert [part["text"] for part in parts(WHOLE)[:-1]] == [CONTEXT]
    assert [part["text"] for part in parts(BY_NAME["gold"])[:-1]] == ["Marie Curie discovered radium."]
    assert parts(BY_NAME["nothing"])[:-1] == []


def test_the_gold_is_every_document_with_evidence_where_none_is_named() -> None:
    several = ((0, 20), (21, 51), (52, 75))
    by_evidence = Case("s", "s/4", "q", CONTEXT, several, answers=("x",), evidence=((4, 11), (52, 58)))
    assert gold_of(by_evidence) == [(0, 20), (52, 75)]


def test_what_pith_is_held_against_is_of_its_own_size() -> None:
    lines = "\n\n".join(f"Document {at} speaks of item{at} and of nothing else." for at in range(20))
    case = Case(
        "s", "s/5", "Which one speaks of item7?", lines, tuple(_spans(lines)), gold=(0, 5), answers=("7",)
    )
    for ratio in COMPARED:
        for name in ("BM25", "tail"):
            [text] = [part["text"] for part in parts(BY_NAME[f"{name} {ratio:g}"], case)[:-1]]
            assert 0 < len(tokens(text)) <= ratio * len(tokens(lines))
        assert "item7 " in parts(BY_NAME[f"BM25 {ratio:g}"], case)[0]["text"]
        assert "item19 " in parts(BY_NAME[f"tail {ratio:g}"], case)[0]["text"]


def _spans(text: str) -> list[tuple[int, int]]:
    starts = [0, *(at + 2 for at in range(len(text)) if text.startswith("\n\n", at))]
    return [(start, (text + "\n\n").index("\n\n", start)) for start in starts]


def test_arms_are_chosen_by_name_and_the_whole_is_always_there() -> None:
    assert [arm.name for arm in arms_of("gold,0.1", None)] == ["whole", "0.1", "gold"]
    assert arms_of("", None) == list(ARMS)
    with pytest.raises(UnknownArm, match="there are whole"):
        arms_of("0.2", None)


def test_a_folder_without_a_checkpoint_is_no_baseline(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no config"):
        arms_of("", tmp_path)


@pytest.mark.parametrize("name", PROMPTS)
def test_every_prompt_has_the_context_once_and_ends_with_the_question(name: str) -> None:
    for arm in (WHOLE, BY_NAME["0.1"], BY_NAME["nothing"]):
        last = body(CASE, arm, PROMPTS[name], None)["messages"][-1]
        texts = [part["text"] for part in last["content"]]
        assert texts.count(CONTEXT) == (arm.context is not None)
        assert CASE.query in texts[-1] and "{}" not in "".join(texts)
