"""The benchmark of limits: every row works, each in a process of its own that can be ended."""

from __future__ import annotations

import time

import pytest

from benchmarks.limits.inputs import HOSTILE, hostile_of
from benchmarks.limits.measuring import measure
from benchmarks.limits.report import line
from benchmarks.limits.row import Cost, Measured, Row, Work
from benchmarks.limits.rows import ROWS, find


def sleeps(size: int) -> Work:
    return lambda: time.sleep(size)


def fails(size: int) -> Work:
    raise ValueError(f"not for {size}")


STUCK = Row("test", "stuck", "never", 4000, sleeps)
FAILING = Row("test", "failing", "never", 4, fails)


def one_of_mine(name: str) -> Row:
    return {STUCK.name: STUCK, FAILING.name: FAILING}[name]


def test_every_row_has_a_name_of_its_own_and_can_be_found() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert all(find(row.name) is row for row in ROWS)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_text_has_nearly_the_size_that_was_asked(name: str) -> None:
    assert 80_000 < len(hostile_of(name, 100_000).encode()) <= 100_000


def test_a_row_is_measured_at_three_sizes_in_another_process() -> None:
    found = measure(ROWS[0], find, scale=0.002, deadline_s=60)
    assert [cost.size for cost in found.costs] == list(ROWS[0].sizes(0.002))
    assert all(cost.seconds > 0 for cost in found.costs) and not found.ended
    assert line(found).count(" ms |") == 3


def test_a_row_that_never_ends_is_ended() -> None:
    found = measure(STUCK, one_of_mine, scale=1, deadline_s=0.2)
    assert not found.costs and found.ended == "over 0.2 s at 1,000"


def test_a_row_that_fails_says_what_failed() -> None:
    assert measure(FAILING, one_of_mine, scale=1, deadline_s=60).ended == "ValueError: not for 1 at 1"


@pytest.mark.parametrize(("power", "shown"), [(1, "n^1.00"), (2, "n^2.00")])
def test_growth_is_the_exponent(power: int, shown: str) -> None:
    costs = [Cost(size, 0.001 * size**power, 1.0) for size in (1, 2, 4)]
    assert f"| {shown} |" in line(Measured(STUCK, costs))
