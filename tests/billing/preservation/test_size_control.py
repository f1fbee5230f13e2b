from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.preservation.size_control import (
    GAIN,
    MARGIN,
    SIZES,
    START,
    STEPS,
    TOP,
    SizeControl,
    shares_of,
    size_of,
)

BOUND = 0.05
shifts = st.lists(st.floats(-1, 8), max_size=200)
steps = st.integers(0, int(TOP) * STEPS).map(lambda quarters: quarters / STEPS)


def after(*samples: float, control: SizeControl | None = None, bound: float = BOUND) -> SizeControl:
    control = control or SizeControl()
    for sample in samples:
        control = control.after(sample, bound)
    return control


@given(shifts, st.floats(0.001, 1))
def test_the_samples_never_come_to_more_than_the_account_allows(samples: list[float], bound: float) -> None:
    control = SizeControl()
    for sample in samples:
        control = control.after(sample, bound)
        allowed = bound * control.samples - MARGIN * sqrt(control.squares)
        assert control.total <= allowed + (START - control.position) * bound / GAIN + 1e-6


@given(shifts)
def test_the_step_in_use_is_a_quarter_of_the_ladder_and_never_above_the_position(
    samples: list[float],
) -> None:
    control = SizeControl()
    for sample in samples:
        control = control.after(sample, BOUND)
        assert 0 <= control.step <= TOP
        assert (control.step * STEPS).is_integer()
        assert control.step <= max(0.0, control.position)


def test_a_new_project_keeps_99_percent() -> None:
    assert {size_of(SizeControl().step, drawn / 100) for drawn in range(100)} == {0.99}
    assert shares_of(SizeControl().step) == {"0.99": 1.0}


def test_chats_that_lose_nothing_become_as_small_as_the_ladder_goes() -> None:
    control, steps = SizeControl(), [START]
    for _ in range(500):
        control = control.after(0.0, BOUND)
        steps.append(control.step)
    assert steps == sorted(steps)
    assert shares_of(steps[-1]) == {"0.8": 1.0}
    # One of the ladder takes a hundred samples at the least, so no luck of a few makes them small.
    assert steps[100] <= START + 1


def test_chats_that_lose_more_than_the_bound_go_out_whole() -> None:
    control = after(*[0.2] * 60)
    assert shares_of(control.step) == {"whole": 1.0}
    assert size_of(control.step, 0.999) is None


def test_one_great_loss_is_felt_at_once_and_made_up_for() -> None:
    calm = after(*[0.01] * 300)
    hurt = calm.after(2.0, BOUND)
    assert hurt.step < calm.step
    assert after(*[0.0] * 300, control=hurt).step >= calm.step


def test_chats_left_whole_are_samples_that_lead_back_up() -> None:
    control = after(*[1.0] * 10)
    assert control.step == 0
    assert after(*[0.0] * 1500, control=control).step > START


def test_a_position_that_goes_to_and_fro_changes_nothing() -> None:
    control = after(*[0.0] * 130)
    settled = control.step
    for _ in range(20):
        control = control.after(2 * BOUND, BOUND).after(0.0, BOUND)
        assert control.step in (settled, settled - 1 / STEPS)


@given(steps)
def test_the_shares_say_which_sizes_conversations_get(step: float) -> None:
    drawn = [size_of(step, number / 1000) for number in range(1000)]
    counted = {size: drawn.count(size) / 1000 for size in set(drawn)}
    assert {
        ("whole" if size is None else f"{size:g}"): share for size, share in counted.items()
    } == shares_of(step)


@given(steps.filter(lambda step: step < TOP))
def test_a_quarter_of_a_step_changes_the_size_of_a_quarter_of_conversations(step: float) -> None:
    drawn = [number / 1000 for number in range(1000)]
    changed = [one for one in drawn if size_of(step, one) != size_of(step + 1 / STEPS, one)]
    assert len(changed) == 250
    ladder = [
        SIZES.index(size_of(step + 1 / STEPS, one)) - SIZES.index(size_of(step, one)) for one in changed
    ]
    assert set(ladder) == {1}


@pytest.mark.parametrize("scale", [0.1, 10])
def test_only_shifts_in_parts_of_the_bound_matter(scale: float) -> None:
    samples = [0.0, 0.3, 0.01, 0.0, 0.06] * 30
    plain, scaled = after(*samples), after(*(scale * each for each in samples), bound=scale * BOUND)
    assert scaled.position == pytest.approx(plain.position)
    assert scaled.step == plain.step
