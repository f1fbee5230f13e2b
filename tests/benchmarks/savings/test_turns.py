"""The session of many turns: the same each time, and what was sent before is sent again."""

from __future__ import annotations

from benchmarks.savings.turns import Session, around, timed, turn


def test_a_turn_is_the_same_each_time_and_of_some_length() -> None:
    assert [turn(number) for number in range(3)] == [turn(number) for number in range(3)]
    assert all(len(turn(number)[-1]["content"]) > 4_000 for number in range(3))


def test_each_turn_compresses_its_new_result_and_keeps_the_others() -> None:
    session = Session()
    measured = list(timed(session, 4))
    assert [tokens for _, tokens in measured] == sorted({tokens for _, tokens in measured})
    assert len(session.outputs) == 4


def test_a_turn_is_reported_with_those_around_it() -> None:
    seconds = [float(number) for number in range(1, 31)]
    assert around(seconds, 10) == 10.0
    assert around(seconds, 30) == 26.0
