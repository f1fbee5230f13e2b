"""The cache of results: within its memory, least recently used first out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from compression.pipeline.receipt import Receipt
from serve.prompt_compression.results import ENTRY_BYTES, Compression, ResultCache, content_key


def result(output: str) -> Compression:
    return Compression((output,), Receipt(10, 3, 0.3, 1.0, "words", ()))


def test_what_was_used_last_stays() -> None:
    cache = ResultCache(2 * ENTRY_BYTES + 100)
    cache.put("a", result("a"), is_paid=True)
    cache.put("b", result("b"), is_paid=True)
    assert cache.get("a") == result("a")
    cache.put("c", result("c"), is_paid=True)
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (result("a"), None, result("c"))


def test_a_result_larger_than_the_cache_drops_nothing_else() -> None:
    cache = ResultCache(2 * ENTRY_BYTES)
    cache.put("a", result("a"), is_paid=True)
    cache.put("large", result("x" * ENTRY_BYTES), is_paid=True)
    assert cache.get("large") is None
    assert cache.get("a") == result("a")


def test_a_cache_of_no_size_keeps_nothing() -> None:
    cache = ResultCache(0)
    cache.put("a", result("a"), is_paid=True)
    assert cache.get("a") is None


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 4000)), max_size=60))
def test_it_never_holds_more_than_it_may(puts: list[tuple[str, int]]) -> None:
    cache = ResultCache(3 * ENTRY_BYTES)
    for key, size in puts:
        cache.put(key, result("x" * size), is_paid=True)
        assert 0 <= cache.size_bytes <= 3 * ENTRY_BYTES


@given(st.lists(st.text(max_size=5), max_size=4), st.lists(st.text(max_size=5), max_size=4))
def test_two_sequences_of_texts_share_a_key_only_if_they_are_the_same(
    one: list[str], other: list[str]
) -> None:
    assert (content_key(b"k", *one) == content_key(b"k", *other)) == (one == other)


def test_what_nobody_has_paid_for_is_known_as_such_until_it_is_paid_or_dropped() -> None:
    cache = ResultCache(2 * ENTRY_BYTES)
    cache.put("a", result("a"), is_paid=False)
    assert not cache.is_paid("a")
    cache.pay(["a", "never seen"])
    assert cache.is_paid("a")


def test_what_one_request_paid_for_stays_paid_when_another_had_it_done_at_the_same_time() -> None:
    cache = ResultCache(2 * ENTRY_BYTES)
    cache.put("a", result("a"), is_paid=False)
    cache.pay(["a"])
    cache.put("a", result("a"), is_paid=False)
    assert cache.is_paid("a")
