"""The batching is arithmetic, so it is tested as such."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from compression.neural.batching import cut, next_batch, plan_batches

lengths = st.lists(st.integers(1, 512), min_size=1, max_size=60)
budgets = st.integers(1, 4096)


@given(lengths, budgets)
def test_a_batch_stays_within_the_budget_or_holds_one_window(sizes: list[int], budget: int) -> None:
    for batch in plan_batches(sizes, budget):
        assert len(batch) == 1 or max(sizes[at] for at in batch) * len(batch) <= budget


@given(lengths, budgets)
def test_every_window_is_in_one_batch(sizes: list[int], budget: int) -> None:
    assert sorted(at for batch in plan_batches(sizes, budget) for at in batch) == list(range(len(sizes)))


@given(lengths, budgets)
def test_the_oldest_window_goes_first_and_the_rest_fits(sizes: list[int], budget: int) -> None:
    batch = next_batch(sizes, budget)
    assert 0 in batch and len(set(batch)) == len(batch)
    assert len(batch) == 1 or max(sizes[at] for at in batch) * len(batch) <= budget


def test_windows_of_like_length_go_together() -> None:
    assert sorted(next_batch([100, 500, 101, 499, 99], 303)) == [0, 2, 4]


@given(st.integers(0, 3000), st.integers(2, 512), st.data())
def test_windows_cover_every_token_and_share_what_was_asked(
    tokens: int, size: int, data: st.DataObject
) -> None:
    overlap = data.draw(st.integers(0, size - 1))
    ends = sorted(data.draw(st.sets(st.integers(1, max(tokens, 1)), max_size=50)))
    windows = cut(tokens, size, overlap, ends)
    assert [at for at in range(tokens) if not any(first <= at < last for first, last in windows)] == []
    assert all(0 < last - first <= size for first, last in windows)
    assert all(left[1] - right[0] == overlap for left, right in pairwise(windows))


def test_a_window_ends_with_a_sentence_where_it_can() -> None:
    assert cut(20, 10, 0, [8, 17]) == [(0, 8), (8, 17), (17, 20)]
