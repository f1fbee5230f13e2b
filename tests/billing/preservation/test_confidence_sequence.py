import random
from collections.abc import Callable
from math import exp, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.preservation.confidence_sequence import ConfidenceSequence, Interval, interval

STREAMS, SAMPLES = 400, 250
numbers = st.floats(-3, 3)
streams = st.lists(numbers, max_size=60)


def _beta(rng: random.Random, mean: float) -> float:
    return rng.betavariate(mean * 2, (1 - mean) * 2)


def _yes_or_no(rng: random.Random, mean: float) -> float:
    return float(rng.random() < mean)


def _mostly_nothing(rng: random.Random, mean: float) -> float:
    return rng.random() * min(1.0, mean * 2 / 0.2) if rng.random() < 0.2 else 0.0


def _skewed(rng: random.Random, mean: float) -> float:
    """A long tail, cut off at 1, which is rarely reached where the mean is small."""
    return min(1.0, mean * exp(rng.gauss(-0.5, 1)))


def _still(mean: float) -> Callable[[int], float]:
    return lambda at: mean


def _rising(at: int) -> float:
    return 0.05 + 0.4 * at / SAMPLES


def _jumping(at: int) -> float:
    return 0.45 if at > SAMPLES // 3 else 0.1


@pytest.mark.parametrize(
    ("draw", "mean_at"),
    [
        (_beta, _still(0.5)),
        (_beta, _still(0.03)),
        (_yes_or_no, _still(0.5)),
        (_yes_or_no, _still(0.04)),
        (_mostly_nothing, _still(0.02)),
        (_skewed, _still(0.01)),
        (_beta, _rising),
        (_yes_or_no, _jumping),
    ],
)
def test_the_average_of_the_means_lies_inside_at_every_look(
    draw: Callable[[random.Random, float], float], mean_at: Callable[[int], float]
) -> None:
    rng = random.Random(f"{draw.__name__} {mean_at(0)} {mean_at(SAMPLES)}")
    missed = sum(_missed_once(rng, draw, mean_at) for _ in range(STREAMS))
    assert missed / STREAMS <= 0.05


def _missed_once(
    rng: random.Random, draw: Callable[[random.Random, float], float], mean_at: Callable[[int], float]
) -> bool:
    sequence = ConfidenceSequence(0, 1, 0.95)
    means = 0.0
    for at in range(SAMPLES):
        mean = mean_at(at)
        sequence.add(draw(rng, mean))
        means += mean
        if not sequence.contains(means / (at + 1)):
            return True
    return False


def test_it_misses_streams_of_which_it_knows_too_little_if_they_are_not_bounded() -> None:
    """The counting above can fail: samples beyond the range count as its end, and their mean is missed."""
    rng = random.Random(1)
    missed = sum(
        _missed_once(rng, lambda rng, mean: mean * 4 * (rng.random() < 0.25), _still(0.6)) for _ in range(20)
    )
    assert missed == 20


@given(streams, st.floats(0.5, 0.999))
def test_an_interval_has_its_mean_and_stays_in_the_range(samples: list[float], confidence: float) -> None:
    found = interval(samples, -1, 2, confidence)
    assert -1 <= found.low <= found.mean <= found.high <= 2


@given(streams, st.floats(-10, 10), st.floats(0.01, 100))
def test_it_moves_and_grows_with_its_samples(samples: list[float], by: float, times: float) -> None:
    plain = interval(samples, -1, 2, 0.95)
    moved = interval([by + times * each for each in samples], by - times, by + times * 2, 0.95)
    for name in ("mean", "low", "high"):
        assert getattr(moved, name) == pytest.approx(
            by + times * getattr(plain, name), abs=1e-7 * (1 + times)
        )


@given(streams)
def test_turned_round_it_is_the_same_interval(samples: list[float]) -> None:
    plain = interval(samples, -1, 2, 0.95)
    turned = interval([-each for each in samples], -2, 1, 0.95)
    assert turned.low == pytest.approx(-plain.high, abs=1e-8)
    assert turned.high == pytest.approx(-plain.low, abs=1e-8)


@given(streams)
def test_a_sample_outside_the_range_counts_as_its_end(samples: list[float]) -> None:
    clipped = [min(2.0, max(-1.0, each)) for each in samples]
    assert interval(samples, -1, 2, 0.95) == interval(clipped, -1, 2, 0.95)


@given(st.lists(numbers, min_size=1, max_size=60), st.floats(-1, 2))
def test_contains_says_what_the_interval_says(samples: list[float], mean: float) -> None:
    sequence = ConfidenceSequence(-1, 2, 0.95)
    for sample in samples:
        sequence.add(sample)
    found = sequence.interval
    if min(abs(mean - found.low), abs(mean - found.high)) > 1e-9:
        assert sequence.contains(mean) == (found.low <= mean <= found.high)


def test_more_confidence_is_a_wider_interval() -> None:
    samples = [0.1, 0.4] * 200
    wide, narrow = interval(samples, 0, 1, 0.99), interval(samples, 0, 1, 0.9)
    assert wide.low < narrow.low < narrow.high < wide.high


def test_many_samples_that_vary_little_leave_a_narrow_interval() -> None:
    rng = random.Random(2)
    found = interval((0.03 * rng.expovariate(1) for _ in range(5000)), 0, 1, 0.95)
    assert found.high - found.low < 0.006
    assert found.low < 0.03 < found.high


def test_without_a_sample_everything_is_possible() -> None:
    assert interval([], -1, 3, 0.95) == Interval(1, -1, 3)


@pytest.mark.parametrize(
    ("low", "high", "confidence"), [(1, 1, 0.95), (2, 1, 0.95), (0, 1, 1), (0, 1, 0), (nan, 1, 0.95)]
)
def test_a_range_or_a_confidence_that_is_none_is_refused(low: float, high: float, confidence: float) -> None:
    with pytest.raises(ValueError):
        ConfidenceSequence(low, high, confidence)


def test_a_sample_that_is_not_a_number_is_refused() -> None:
    with pytest.raises(ValueError):
        interval([0.5, nan], 0, 1, 0.95)
