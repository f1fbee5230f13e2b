"""The choice of a replica by what each has cached, what it has read lately, and what it has to do."""

from __future__ import annotations

from collections import Counter

from serve.cluster.replicas.known_caches import HALF_LIFE_S, ON_THE_WAY, READ_SHARE, KnownCaches

KEYS = list(range(100, 140))
IDLE = {"a": 0, "b": 0}


def known(*replicas: str) -> KnownCaches:
    caches = KnownCaches()
    caches.run(replicas, 0.0)
    return caches


def picked(
    caches: KnownCaches, keys: list[int], loads: dict[str, int] | None = None, now_s: float = 0.0
) -> str:
    return caches.pick(keys, loads or IDLE, slack=8, now_s=now_s)


def test_a_prompt_goes_to_the_replica_that_has_told_most_of_it() -> None:
    caches = known("a", "b")
    caches["a"].told, caches["b"].told = set(KEYS[:10]), set(KEYS[:20])
    assert picked(caches, KEYS) == "b"
    caches["b"].change([], KEYS[5:20], 0.0)
    assert picked(caches, KEYS) == "a"


def test_what_is_on_its_way_to_a_replica_counts_until_that_has_told_of_it() -> None:
    caches = known("a", "b")
    caches["b"].send(KEYS, 0.0)
    assert caches["b"].blocks_of(KEYS) == len(KEYS)
    caches["b"].change(KEYS, [], 0.0)
    caches["b"].change([], KEYS, 0.0)
    assert caches["b"].blocks_of(KEYS) == 0


def test_what_is_on_its_way_and_is_never_told_of_is_bounded() -> None:
    cache = known("a")["a"]
    for start in range(0, 3 * ON_THE_WAY, 256):
        cache.send(range(start, start + 256), 0.0)
    assert len(cache.on_the_way) == ON_THE_WAY
    assert cache.blocks_of(range(256)) == 0


def test_a_replica_that_is_much_busier_loses_its_conversations() -> None:
    caches = known("a", "b")
    caches["a"].told = set(KEYS)
    assert picked(caches, KEYS, {"a": 8, "b": 0}) == "a"
    assert picked(caches, KEYS, {"a": 9, "b": 0}) == "b"


def test_what_many_begin_with_comes_to_be_cached_elsewhere_once_one_has_read_much_for_it() -> None:
    caches = known("a", "b")
    shared, sent = KEYS[:20], Counter[str]()
    for conversation in range(100):
        keys = [*shared, *range(1000 * conversation + 1000, 1000 * conversation + 1010)]
        replica = picked(caches, keys)
        caches[replica].send(keys, 0.0)
        sent[replica] += 1
    assert caches["a"].blocks_of(shared) == caches["b"].blocks_of(shared) == len(shared)
    assert min(sent.values()) > 40


def test_a_conversation_stays_unless_its_replica_has_read_far_more_than_all_of_it() -> None:
    caches = known("a", "b")
    caches["a"].told = set(KEYS)
    far_more = int(len(KEYS) / READ_SHARE)
    caches["a"].add_read(far_more - 1, 0.0)
    assert picked(caches, KEYS) == "a"
    caches["a"].add_read(2, 0.0)
    assert picked(caches, KEYS) == "b"
    assert picked(caches, KEYS, now_s=HALF_LIFE_S) == "a"


def test_what_other_processes_have_sent_counts_as_read_and_ones_own_counts_once() -> None:
    caches = known("a", "b")
    caches["a"].send(KEYS, 0.0)
    caches["a"].change(KEYS, [], 0.0)
    caches["b"].change(KEYS, [], 0.0)
    assert caches["a"].read == caches["b"].read == len(KEYS)


def test_a_new_replica_gets_its_share_and_not_all_that_comes() -> None:
    caches = known("a", "b")
    for name, start in (("a", 0), ("b", 5000)):
        caches[name].send(range(start, start + 1000), 0.0)
    caches.run(["a", "b", "c"], 0.0)
    assert caches["c"].read == 1000
    caches["a"].told = set(KEYS)
    assert picked(caches, KEYS, {"a": 0, "b": 0, "c": 0}) == "a"


def test_a_cache_ends_with_its_replica() -> None:
    caches = known("a", "b")
    caches["a"].told = set(KEYS)
    caches.run(["b"], 0.0)
    caches.run(["a", "b"], 0.0)
    assert caches["a"].blocks_of(KEYS) == 0


def test_a_prompt_without_a_key_goes_to_the_least_busy() -> None:
    caches = known("a", "b")
    caches["b"].add_read(1000, 0.0)
    assert picked(caches, [], {"a": 2, "b": 1}) == "b"


def test_prompts_that_nobody_has_spread_over_idle_replicas_alike_in_every_process() -> None:
    names = dict.fromkeys("abcd", 0)
    spread = Counter(picked(known(*names), [7919 * number], names) for number in range(400))
    assert min(spread.values()) > 50
    # By the key alone: Python's own hash differs from process to process.
    assert picked(known(*names), [7], names) == "d"
