"""Prompts go where their beginning is cached, unless that replica is too busy."""

from __future__ import annotations

from collections import Counter

from models.engine import EngineRequest
from serve.cluster.replicas.pool import BLOCK_CHARS, BLOCKS, SentPrefixes, beginnings, pick

LONG = "You are a patient librarian who answers in one sentence. " * 20


def request(*texts: str, salt: str = "workspace") -> EngineRequest:
    messages = tuple({"role": "user", "content": text} for text in texts)
    return EngineRequest("id", "model", messages, 16, True, salt)


def test_a_longer_conversation_begins_like_the_shorter_one() -> None:
    shorter, longer = beginnings(request(LONG)), beginnings(request(LONG, "And then?", "Well."))
    assert list(longer.keys[: len(shorter.keys)]) == list(shorter.keys)
    assert len(shorter.keys) == len(f"user:{LONG};") // BLOCK_CHARS


def test_workspaces_share_no_beginning() -> None:
    ours, theirs = beginnings(request(LONG)), beginnings(request(LONG, salt="other"))
    assert not set(ours.keys) & set(theirs.keys)


def test_a_prompt_that_differs_early_shares_nothing_after_it() -> None:
    ours, theirs = beginnings(request(LONG)), beginnings(request("!" + LONG[1:]))
    assert not set(ours.keys) & set(theirs.keys)


def test_a_short_prompt_has_no_key_and_a_huge_one_no_more_than_the_bound() -> None:
    assert beginnings(request("hi")).keys == []
    assert len(beginnings(request("word " * 100_000)).keys) == BLOCKS


def test_the_replica_that_was_sent_most_of_a_prompt_is_known() -> None:
    sent = SentPrefixes()
    short, long = beginnings(request(LONG)), beginnings(request(LONG, LONG))
    sent.note(short.keys, "a")
    sent.note(long.keys, "b")
    assert sent.match(long.keys, ["a", "b", "c"]) == {
        # The block that `short` ends in has its end in `long` only.
        "a": len(short.keys),
        "b": len(long.keys),
        "c": 0,
    }


def test_a_replica_that_has_ended_is_forgotten() -> None:
    sent, prompt = SentPrefixes(), beginnings(request(LONG))
    sent.note(prompt.keys, "a")
    sent.note(prompt.keys, "b")
    sent.forget(["a"])
    assert sent.match(prompt.keys, ["a", "b"]) == {"a": 0, "b": len(prompt.keys)}
    sent.forget(["b"])
    assert len(sent) == 0


def test_what_is_remembered_is_bounded_and_the_oldest_goes_first() -> None:
    sent = SentPrefixes(remembered=20)
    prompts = [beginnings(request(f"{number} " + LONG)) for number in range(20)]
    for prompt in prompts:
        sent.note(prompt.keys, "a")
    assert len(sent) == 20
    assert sent.match(prompts[0].keys, ["a"]) == {"a": 0}
    assert sent.match(prompts[-1].keys, ["a"]) == {"a": len(prompts[-1].keys)}


def test_the_longest_match_wins_within_the_slack_and_not_beyond() -> None:
    prompt, lengths = beginnings(request(LONG)), {"a": 5, "b": 0}
    assert pick(prompt, lengths, {"a": 8, "b": 0}, slack=8) == "a"
    assert pick(prompt, lengths, {"a": 9, "b": 0}, slack=8) == "b"


def test_without_a_match_the_least_busy_is_picked() -> None:
    assert pick(beginnings(request("hi")), {"a": 0, "b": 0}, {"a": 2, "b": 1}, slack=8) == "b"


def test_prompts_that_match_nowhere_spread_over_idle_replicas_alike_in_every_process() -> None:
    names = {name: 0 for name in ("a", "b", "c", "d")}
    prompts = [beginnings(request(f"Question number {number}")) for number in range(400)]
    picked = Counter(pick(prompt, names, names, slack=8) for prompt in prompts)
    assert min(picked.values()) > 50
    # By the text alone: Python's own hash differs from process to process.
    assert pick(beginnings(request("Question number 7")), names, names, slack=8) == "d"
