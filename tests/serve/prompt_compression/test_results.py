"""The cache of results: within its memory, least recently used first out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from compression.pipeline.compression_model import Receipt
from serve.prompt_compression.outcome import ENTRY_BYTES, Compression, ResultCache, content_key


def result(output: str) -> Compression:
    return Compression((output,), Receipt(10, 3, 0.3, 1.0, "words", ()))


def put(cache: ResultCache, key: str, output: str, owner: str = "one") -> None:
    made = cache.of(key)
    made.compression = result(output)
    cache.keep(key, made, owner=owner)


def get(cache: ResultCache, key: str) -> Compression | None:
    return cache.of(key).compression


def test_what_was_used_last_stays() -> None:
    cache = ResultCache(2 * ENTRY_BYTES + 100)
    put(cache, "a", "a")
    put(cache, "b", "b")
    assert get(cache, "a") == result("a")
    put(cache, "c", "c")
    assert (get(cache, "a"), get(cache, "b"), get(cache, "c")) == (result("a"), None, result("c"))


def test_a_result_larger_than_the_cache_drops_nothing_else() -> None:
    cache = ResultCache(2 * ENTRY_BYTES)
    put(cache, "a", "a")
    put(cache, "large", "x" * ENTRY_BYTES)
    assert get(cache, "large") is None
    assert get(cache, "a") == result("a")


def test_a_cache_of_no_size_keeps_nothing() -> None:
    cache = ResultCache(0)
    put(cache, "a", "a")
    assert get(cache, "a") is None


def test_a_workspace_that_fills_the_cache_drops_its_own() -> None:
    cache = ResultCache(8 * ENTRY_BYTES)
    put(cache, "a", "a", owner="small")
    for number in range(40):
        put(cache, f"large {number}", "x" * (ENTRY_BYTES // 4), owner="large")
    assert get(cache, "a") == result("a")
    # The small one may have as much as the large one, which makes room for it.
    for number in range(40):
        put(cache, f"small {number}", "x" * (ENTRY_BYTES // 4), owner="small")
    kept = [get(cache, f"large {number}") is not None for number in range(40)]
    assert kept[-1] and 1 <= sum(kept) <= 3


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 4000), st.sampled_from("xyz")), max_size=60)
)
def test_it_never_holds_more_than_it_may(puts: list[tuple[str, int, str]]) -> None:
    cache = ResultCache(3 * ENTRY_BYTES)
    for key, size, owner in puts:
        put(cache, owner + key, "x" * size, owner)
        assert 0 <= cache.size_bytes <= 3 * ENTRY_BYTES
    cache.clear()
    assert cache.size_bytes == 0


@given(st.lists(st.text(max_size=5), max_size=4), st.lists(st.text(max_size=5), max_size=4))
def test_two_sequences_of_texts_share_a_key_only_if_they_are_the_same(
    one: list[str], other: list[str]
) -> None:
    assert (content_key(b"k", *one) == content_key(b"k", *other)) == (one == other)


def test_what_a_request_still_uses_is_found_though_the_cache_has_no_room_for_it() -> None:
    cache = ResultCache(0)
    put(cache, "a", "a")
    assert get(cache, "a") is None
    used = cache.of("a")
    used.compression = result("a")
    cache.keep("a", used, owner="one")
    assert cache.of("a") is used
    assert cache.size_bytes == 0
