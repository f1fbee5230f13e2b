"""The contents of a replica's cache, as its engine's measurements tell them, and what listeners hear."""

from __future__ import annotations

import asyncio

import pytest

from models.engine import TokenUsage
from serve.cluster.replicas.cached_beginnings import MOST_ROOM, CacheContents, Changes, TooSlow


def usage(prompt_tokens: int, cached_tokens: int = 0) -> TokenUsage:
    return TokenUsage(prompt_tokens, 1, cached_tokens)


def heard(changes: Changes) -> tuple[set[int], set[int]]:
    added, dropped = changes.take()
    return set(added), set(dropped)


def test_who_listens_hears_all_that_is_cached_and_then_what_changes() -> None:
    contents = CacheContents(1000)
    contents.read([1, 2], usage(200))
    with contents.listener() as changes:
        assert heard(changes) == ({1, 2}, set())
        contents.read([1, 2, 3], usage(300, 200))
        assert heard(changes) == ({3}, set())
        contents.read([1, 2, 3], usage(300, 300))
        assert heard(changes) == (set(), set())
    contents.read([9], usage(100))
    assert heard(changes) == (set(), set())


def test_what_was_used_last_stays_and_of_a_prompt_the_beginning() -> None:
    contents = CacheContents(1000)
    contents.read([1, 2, 3, 4], usage(400))
    contents.read([11, 12, 13, 14], usage(400))
    contents.read([1, 2], usage(200, 200))
    with contents.listener() as changes:
        heard(changes)
        contents.read([21, 22, 23, 24], usage(400))
        # The rest of the first prompt, and no more than has to make way.
        assert heard(changes) == ({21, 22, 23, 24}, {3, 4})
        contents.read([31], usage(100))
        assert heard(changes) == ({31}, {14})


def test_what_was_measured_to_be_gone_has_taken_the_place_of_something_else() -> None:
    contents = CacheContents(100_000)
    contents.read([11, 12], usage(2000))
    contents.read([1, 2], usage(2000))
    with contents.listener() as changes:
        heard(changes)
        contents.read([1, 2], usage(2000, 1900))
        assert heard(changes) == (set(), set())
        contents.read([1, 2], usage(2000, 0))
        assert heard(changes) == (set(), {11, 12})


def test_a_request_that_found_nothing_of_what_it_has_never_drops_itself() -> None:
    contents = CacheContents(100_000)
    contents.read([1, 2], usage(4000))
    contents.read([1, 2], usage(4000, 0))
    assert len(contents) == 2


def test_what_was_found_though_it_should_have_gone_shows_that_there_is_more_room() -> None:
    contents = CacheContents(1000)
    contents.read([1], usage(1000))
    contents.read([2], usage(1000))
    contents.read([1], usage(1000, 1000))
    assert len(contents) == 2


def test_what_prompts_have_in_common_beside_their_text_makes_no_room_without_end() -> None:
    contents = CacheContents(1000)
    for key in range(200):
        contents.read([key], usage(1000, 900))
    assert len(contents) == MOST_ROOM


def test_an_engine_without_a_cache_has_nothing_and_a_prompt_without_keys_is_nothing() -> None:
    without, contents = CacheContents(0), CacheContents(1000)
    without.read([1, 2], usage(200))
    contents.read([], usage(10))
    assert len(without) == len(contents) == 0


def test_no_more_is_known_than_the_bound_whatever_the_engine_holds() -> None:
    contents = CacheContents(most_known=100)
    for start in range(0, 1000, 50):
        contents.read(range(start, start + 50), usage(50))
    assert len(contents) == 100


def test_an_engine_that_was_started_again_has_nothing() -> None:
    contents = CacheContents(1000)
    contents.read([1, 2], usage(200))
    with contents.listener() as changes:
        heard(changes)
        contents.clear()
        assert heard(changes) == (set(), {1, 2})
    contents.read([3], usage(1000))
    assert len(contents) == 1


async def test_a_listener_waits_until_there_is_something() -> None:
    contents = CacheContents(1000)
    with contents.listener() as changes:
        assert await changes.next() == ([], [])
        waiting = asyncio.create_task(changes.next())
        await asyncio.sleep(0)
        assert not waiting.done()
        contents.read([7], usage(100))
        async with asyncio.timeout(60):
            assert await waiting == ([7], [])


def test_who_does_not_listen_for_long_is_told_to_begin_again_and_costs_no_more_memory() -> None:
    contents = CacheContents(most_known=10)
    with contents.listener() as changes:
        for start in range(0, 100, 10):
            contents.read(range(start, start + 10), usage(10))
        with pytest.raises(TooSlow):
            changes.take()
