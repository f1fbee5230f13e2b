"""Which cases are asked, and in what order."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from benchmarks.answers.cases import answered, drawn, is_judged
from benchmarks.evaluation.case import Case
from tests.benchmarks.answers.made import CASE, CONTEXT


def many(suite: str, count: int) -> Callable[[], Iterator[Case]]:
    return lambda: (
        replace(CASE, suite=suite, name=f"{suite}-{at}", is_held_out=at % 2 == 0) for at in range(count)
    )


MAKERS = {"a": many("a", 40), "b": many("b", 6)}


def test_only_cases_are_asked_whose_answer_is_a_string_and_has_a_known_place() -> None:
    assert is_judged(CASE)
    assert not is_judged(Case("s", "s/2", "q", CONTEXT, (), gold=(0, 3)))
    assert not is_judged(Case("s", "s/3", "q", CONTEXT, (), answers=("x",)))


def test_suites_take_turns_so_that_a_run_that_is_cut_has_as_many_of_each() -> None:
    found = drawn(MAKERS, ["a", "b"], "held-out", 5)
    assert [case.suite for case in found] == ["a", "b"] * 3 + ["a", "a"]
    assert all(case.is_held_out for case in found)
    assert not any(case.is_held_out for case in drawn(MAKERS, ["a"], "trained", 5))
    assert len(drawn(MAKERS, ["a"], "all", 99)) == 40


def test_a_larger_limit_has_the_cases_of_a_smaller_one_first() -> None:
    few, more = (drawn(MAKERS, ["a"], "all", limit) for limit in (4, 20))
    assert more[:4] == few != drawn({"a": many("a", 4)}, ["a"], "all", 4)


def test_evidence_is_the_answer_of_a_suite_that_has_nothing_else_for_evidence() -> None:
    found = answered(replace(CASE, suite="languages", answers=(), evidence=((21, 32), (52, 58))))
    assert found.answers == ("Marie Curie", "Pierre") and is_judged(found)
    assert answered(replace(CASE, answers=(), evidence=((21, 32),))).answers == ()
