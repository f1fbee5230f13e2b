"""Areas under ROC curves, and their intervals for samples in groups."""

import random

import pytest

from benchmarks.answers.auroc import Sample, auroc


def samples(figures: list[tuple[float, bool]]) -> list[Sample]:
    return [Sample(str(at), figure, happened) for at, (figure, happened) in enumerate(figures)]


def test_it_is_the_share_of_pairs_in_order_with_equal_ones_half() -> None:
    found = auroc(samples([(3, True), (1, True), (1, False), (0, False)]))
    assert found is not None and found.value == pytest.approx((2 + 0.5 + 1) / 4)
    perfect = auroc(samples([(2, True), (3, True), (0, False), (1, False)]))
    assert perfect is not None and perfect.value == 1.0


@pytest.mark.parametrize(
    "figures", [[], [(1.0, True)], [(1.0, True), (2.0, True)], [(0.0, False), (1.0, False)]]
)
def test_of_samples_that_are_all_alike_there_is_none(figures: list[tuple[float, bool]]) -> None:
    assert auroc(samples(figures)) is None


def test_the_interval_is_delongs_where_every_sample_stands_alone() -> None:
    events, others = [0.9, 0.8, 0.7, 0.35], [0.6, 0.4, 0.3, 0.2, 0.1]
    found = auroc(samples([(each, True) for each in events] + [(each, False) for each in others]))
    above = [sum(event > other for other in others) / 5 for event in events]
    below = [sum(event > other for event in events) / 4 for other in others]
    value = 18 / 20
    # Over all samples, the sums of squares; and 9 / 8 in place of 4 / 3 and 5 / 4.
    error = (
        9 / 8 * (sum((x - value) ** 2 for x in above) / 16 + sum((y - value) ** 2 for y in below) / 25)
    ) ** 0.5
    assert found is not None and found.value == pytest.approx(value)
    assert found.low == pytest.approx(value - 1.959964 * error)


def test_repeating_each_case_makes_no_interval_narrower() -> None:
    chance = random.Random(7)
    once = [Sample(str(at), chance.gauss(1.0 if at % 2 else 0.0, 1.0), bool(at % 2)) for at in range(100)]
    single, thrice = auroc(once), auroc(once * 3)
    assert single is not None and thrice is not None
    assert thrice.high - thrice.low == pytest.approx(single.high - single.low)


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    chance, held = random.Random(11), 0
    for _ in range(300):
        drawn = []
        for group in range(40):
            shared = chance.gauss(0, 1)
            drawn += [
                Sample(str(group), shared + chance.gauss(1.0 if happened else 0.0, 1.0), happened)
                for happened in (True, False)
            ]
        found = auroc(drawn)
        assert found is not None
        # Of two normal figures with variance 2 whose means are 1 apart: the normal distribution at 1 / 2.
        held += found.low <= 0.6914624612740131 <= found.high
    assert held >= 0.9 * 300
