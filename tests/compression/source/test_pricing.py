"""A conversation's shells are paid for once: what stands in a shell that is paid for is cheap."""

from __future__ import annotations

import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from compression.second_look.rounds import demoted
from compression.segmentation import segment
from compression.source.pricing import by_price


def test_what_shares_a_shell_that_is_paid_for_comes_first() -> None:
    # Units 0 and 1 stand in a shell of 40 tokens, unit 2 in another; 2 scores better than 1 alone would.
    order = by_price([0, 1, 2], [0.9, 0.3, 0.5], [10, 10, 10], [(0,), (0,), (1,)], [40, 40], [(), ()])
    assert list(order) == [0, 1, 2]


def test_without_shells_the_better_of_two_of_one_length_comes_first() -> None:
    assert list(by_price([0, 1, 2], [0.1, 0.9, 0.5], [7, 7, 7], [(), (), ()], [], [])) == [1, 2, 0]


def test_shells_within_shells_are_paid_for_together() -> None:
    order = by_price([0, 1, 2], [0.9, 0.2, 0.3], [5, 5, 5], [(1,), (0,), (2,)], [30, 30, 60], [(), (0,), ()])
    assert list(order) == [0, 1, 2]


@given(st.data())
def test_every_unit_comes_once(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    groups = data.draw(st.integers(1, 5))
    scores = data.draw(st.lists(st.floats(0, 1), min_size=count, max_size=count))
    costs = data.draw(st.lists(st.integers(0, 50), min_size=count, max_size=count))
    group = st.integers(0, groups - 1)
    needs = data.draw(st.lists(st.lists(group, max_size=2).map(tuple), min_size=count, max_size=count))
    parents = [() if number == 0 else (data.draw(st.integers(0, number - 1)),) for number in range(groups)]
    prices = data.draw(st.lists(st.integers(0, 90), min_size=groups, max_size=groups))
    order = list(by_price(range(count), scores, costs, needs, prices, parents))
    assert sorted(order) == list(range(count))
    assert order == list(by_price(range(count), scores, costs, needs, prices, parents))


def test_what_is_worth_less_once_another_was_taken_is_put_back() -> None:
    scores = [0.9, 0.8, 0.5]
    order = by_price([0, 1, 2], scores, [7, 7, 7], [(), (), ()], [], [])
    first = next(order)
    scores[1] = 0.1
    assert [first, *order] == [0, 2, 1]


def test_of_members_that_say_the_same_the_best_stays_and_of_equals_the_last() -> None:

    rows = [
        {"id": f"A{n}", "at": "2024-05-24", "gate": f"B{n}", "note": "x" * 90, "more": n} for n in range(3)
    ]
    text = segment(json.dumps(rows))
    dates = [unit for unit in range(len(text.units)) if text.text(unit) == '"at": "2024-05-24"']
    copy_of = np.arange(len(text.units))
    copy_of[dates] = dates[0]
    nobody = np.zeros(len(text.units), bool)
    logits = np.zeros(len(text.units), np.float32)
    assert demoted(logits, text, copy_of, nobody)[dates].tolist() == [-4, -4, 0]
    logits[dates[1]] = 1
    assert demoted(logits, text, copy_of, nobody)[dates].tolist() == [-4, 1, -4]
    everybody = ~nobody
    assert demoted(logits, text, copy_of, everybody).tolist() == logits.tolist()
