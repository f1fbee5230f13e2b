"""Conversations keep their side as they grow, and about the share that was asked for is held out."""

from __future__ import annotations

from typing import Any

from billing.caller import NO_LIMITS, Caller
from serve.prompt_compression.service import conversation_of, is_held_out

KEY = b"k" * 32


def caller(project: str = "p") -> Caller:
    return Caller("w", project, "k", metered=True, limits=NO_LIMITS)


def start(text: str) -> list[dict[str, Any]]:
    return [{"role": "system", "content": "Help."}, {"role": "user", "content": text}]


def test_every_turn_of_a_conversation_is_of_that_conversation() -> None:
    grown = [*start("hi"), {"role": "assistant", "content": "yes?"}, {"role": "user", "content": "more"}]
    assert conversation_of(grown, caller(), KEY) == conversation_of(start("hi"), caller(), KEY)
    assert conversation_of(start("ho"), caller(), KEY) != conversation_of(start("hi"), caller(), KEY)


def test_projects_and_servers_do_not_share_names_of_conversations() -> None:
    names = {
        conversation_of(start("hi"), caller(project), key) for project in "ab" for key in (KEY, b"x" * 32)
    }
    assert len(names) == 4


def test_what_orjson_does_not_write_is_a_conversation_too() -> None:
    assert conversation_of(start("\ud800"), caller(), KEY) != conversation_of(start("\udfff"), caller(), KEY)


def test_the_share_is_held_out() -> None:
    names = [conversation_of(start(str(number)), caller(), KEY) for number in range(4000)]
    assert 0.15 < sum(is_held_out(name, 0.2) for name in names) / len(names) < 0.25
    assert not any(is_held_out(name, 0) for name in names)
    assert all(is_held_out(name, 1) for name in names)


def test_a_conversation_without_a_user_s_message_keeps_its_side_too() -> None:
    begun = [{"role": "system", "content": "Help."}, {"role": "assistant", "content": "Hello."}]
    grown = [*begun, {"role": "tool", "content": "42"}, {"role": "assistant", "content": "So 42."}]
    assert conversation_of(grown, caller(), KEY) == conversation_of(begun, caller(), KEY)


def test_what_an_assistant_says_first_does_not_make_two_conversations_one() -> None:
    greeting = {"role": "assistant", "content": "Hello."}
    assert conversation_of([greeting, *start("a")], caller(), KEY) != conversation_of(
        [greeting, *start("b")], caller(), KEY
    )
