"""Words, what ties them, and slices that never run two of them together."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from compression.choosing.budget import share_budget
from compression.neural.words import find_guards, group_words, join_words, split_words


def texts(source: str, starts: list[int] | None = None) -> list[str]:
    return [source[w.start : w.end] for w in split_words(source, (0, len(source)), starts or [])]


def test_words_lie_between_spaces_and_the_last_mark_is_its_own() -> None:
    assert texts("The plan, they say, failed.") == ["The", "plan,", "they", "say,", "failed", "."]


def test_where_there_are_no_spaces_tokens_are_words() -> None:
    assert texts("我们GPT模型好", [0, 2, 5, 7]) == ["我们", "GPT", "模型", "好"]


def test_two_words_never_become_one() -> None:
    source = "ABC中文DEF"
    words = split_words(source, (0, len(source)), [0, 3, 5])
    spans = join_words(source, words, [True, False, True])
    assert "".join(source[s:e] for s, e in spans) == source


def test_a_kept_word_brings_the_space_before_it() -> None:
    source = "one two\n three  four"
    words = split_words(source, (0, len(source)), [])
    spans = join_words(source, words, [True, False, True, True])
    assert "".join(source[s:e] for s, e in spans) == "one\n three  four"


def test_groups_follow_the_guards() -> None:
    source = "they did not sign it for $5 million yet"
    words = split_words(source, (0, len(source)), [])
    groups = group_words(words, find_guards(source))
    found = [(source[words[g.first].start : words[g.last - 1].end], g.locked) for g in groups]
    assert ("did not sign it", False) in found
    assert ("$5 million", True) in found


@given(st.text("ab c中文é.1\n", max_size=40), st.data())
def test_joined_words_are_slices_in_order_and_separate(source: str, data: st.DataObject) -> None:
    words = split_words(source, (0, len(source)), list(range(len(source))))
    kept = data.draw(st.lists(st.booleans(), min_size=len(words), max_size=len(words)))
    spans = join_words(source, words, kept)
    assert all(left[1] < right[0] for left, right in pairwise(spans))
    inside = {at for start, end in spans for at in range(start, end)}
    assert all(
        set(range(word.start, word.end)) <= inside for word, stays in zip(words, kept, strict=True) if stays
    )


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 100)), max_size=30), st.integers(0, 2000))
def test_shares_never_exceed_the_total_nor_a_unit(units: list[tuple[float, int]], total: int) -> None:
    scores, tokens = [score for score, _ in units], [size for _, size in units]
    shares = share_budget(scores, tokens, total)
    assert all(0 <= share <= size for share, size in zip(shares, tokens, strict=True))
    assert sum(shares) <= total


def test_a_unit_that_matters_more_keeps_a_larger_share() -> None:
    assert share_budget([0.9, 0.3, 0.0], [100, 100, 100], 120) == [90, 30, 0]
    assert share_budget([1.0, 0.1], [50, 100], 60) == [50, 10]
