"""McNemar's test and the interval, against values that are known and what must hold of any."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.answers.pairs import Pairs, pairs, share_interval

COUNTS = st.integers(0, 300)


def test_cases_are_paired_by_name_and_those_of_one_arm_alone_are_left_out() -> None:
    first = {"a": True, "b": True, "c": False, "d": False, "only": True}
    second = {"a": True, "b": False, "c": True, "d": False, "other": True}
    assert pairs(first, second) == Pairs(both=1, only_first=1, only_second=1, neither=1)


@pytest.mark.parametrize(
    ("only_first", "only_second", "p"),
    [(0, 0, 1.0), (5, 5, 1.0), (0, 6, 2 / 64), (1, 9, 22 / 1024), (8, 2, 112 / 1024)],
)
def test_the_p_value_is_that_of_a_fair_coin(only_first: int, only_second: int, p: float) -> None:
    assert Pairs(10, only_first, only_second, 4).p_value() == pytest.approx(p)


def test_the_interval_is_the_published_one() -> None:
    # Agresti and Min: b = 6.5, c = 2.5 of 22 with the halves; (b - c) / n and its standard error.
    low, high = Pairs(both=8, only_first=2, only_second=6, neither=4).interval()
    error = (9 - 16 / 22) ** 0.5 / 22
    assert (low, high) == pytest.approx((4 / 22 - 1.959964 * error, 4 / 22 + 1.959964 * error))


@given(COUNTS, COUNTS, COUNTS, COUNTS)
def test_it_holds_the_difference_drawn_to_nothing_and_swapping_arms_turns_it_round(
    both: int, first: int, second: int, neither: int
) -> None:
    found, swapped = Pairs(both, first, second, neither + 1), Pairs(both, second, first, neither + 1)
    low, high = found.interval()
    assert low - 1e-12 <= found.difference * found.cases / (found.cases + 2) <= high + 1e-12
    assert swapped.interval() == pytest.approx((-high, -low))
    assert swapped.p_value() == found.p_value() <= 1


def test_the_interval_of_a_share_is_wilsons_and_has_a_width_where_none_was_right() -> None:
    assert share_interval(15, 50) == pytest.approx((0.1910, 0.4375), abs=1e-4)
    assert share_interval(0, 33) == pytest.approx((0.0, 0.1043), abs=1e-4)
    assert share_interval(33, 33)[1] == 1
