"""`billing.rate_limits.counters`: the estimate of a sliding minute, and the waits that it promises."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.caller import WindowState
from billing.rate_limits.counters import WINDOW_S, PeriodWindow, Window, retry_after_s

windows = st.builds(
    Window,
    limit=st.integers(1, 10**6),
    previous=st.integers(0, 10**6),
    current=st.integers(0, 10**6),
    elapsed_s=st.floats(0, 59.999),
)


def later(window: Window, seconds: float) -> Window:
    """The same counters, `seconds` on, when nothing else was counted."""
    moment = window.elapsed_s + seconds
    if moment < WINDOW_S:
        return Window(window.limit, window.previous, window.current, moment)
    if moment < 2 * WINDOW_S:
        return Window(window.limit, window.current, 0, moment - WINDOW_S)
    return Window(window.limit, 0, 0, moment % WINDOW_S)


@given(windows, st.integers(1, 10**6))
def test_after_the_promised_wait_the_request_fits(window: Window, amount: int) -> None:
    if amount <= window.limit:
        assert later(window, retry_after_s(window, amount)).admits(amount)


@given(windows, st.integers(1, 10**6))
def test_the_promised_wait_is_not_longer_than_it_must_be(window: Window, amount: int) -> None:
    wait_s = window.wait_s(amount)
    if amount <= window.limit and wait_s > 0.01:
        # A hundredth of a second earlier there is less room; the tolerance is that of the estimate itself.
        assert later(window, wait_s - 0.01).used + amount > window.limit - 1e-6


@given(windows)
def test_what_is_said_to_remain_is_admitted_and_one_more_is_not(window: Window) -> None:
    remaining = window.state.remaining
    if remaining:
        assert window.admits(remaining)
    assert not window.admits(remaining + 1)


@given(windows)
def test_after_the_reset_everything_remains(window: Window) -> None:
    assert later(window, window.state.reset_s).used == pytest.approx(0, abs=1e-6)


@given(st.integers(1, 10**6), st.integers(0, 10**6), st.floats(0.001, 90_000), st.integers(1, 10**6))
def test_an_hour_or_a_day_admits_what_remains_and_else_waits_for_its_end(
    limit: int, current: int, ends_in_s: float, amount: int
) -> None:
    window = PeriodWindow(limit, 0, current, 0.0, ends_in_s)
    remaining = window.state.remaining
    assert window.admits(remaining) or current > limit
    assert not window.admits(remaining + 1)
    assert window.wait_s(amount) == (0 if amount <= limit - current else ends_in_s)
    assert ends_in_s <= max(1, retry_after_s(window, limit + 1)) < ends_in_s + 1 + 1e-5


def test_half_way_through_a_minute_half_of_the_last_one_counts() -> None:
    window = Window(limit=10, previous=8, current=3, elapsed_s=30)
    assert window.used == 7
    assert window.state == WindowState(limit=10, remaining=3, reset_s=90)
    assert window.wait_s(3) == 0
    # Room for a fourth: 8 x (1 - t/60) must sink from 4 to 3, at t = 37.5.
    assert window.wait_s(4) == 7.5
    assert retry_after_s(window, 4) == 8


def test_a_full_minute_makes_the_next_request_wait_into_the_next_minute() -> None:
    assert Window(limit=10, previous=0, current=10, elapsed_s=50).wait_s(1) == pytest.approx(16)


def test_a_request_over_the_limit_itself_is_told_a_whole_window() -> None:
    assert retry_after_s(Window(limit=10, previous=0, current=0, elapsed_s=0), 11) == WINDOW_S
