"""Which values the conversation has before a tool's result, in what is sent whole."""

from __future__ import annotations

from typing import Any

from compression.conversation.queries import MOST_CHARS, MOST_VALUES, Said
from serve.prompt_compression.blocks import find_blocks

Messages = list[dict[str, Any]]


def call(number: int, arguments: str) -> dict[str, Any]:
    function = {"name": "look_up", "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}],
    }


def result(number: int, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"c{number}", "content": text}


def known(messages: Messages, scope: Any = "marked") -> list[tuple[str, ...]]:
    return [block.known for block in find_blocks(messages, scope) if block.is_tool_result]


def test_what_user_assistant_and_calls_said_is_known_and_what_tools_said_is_not() -> None:
    messages = [
        {"role": "user", "content": "I am anna_77, and it is about K-1041."},
        call(1, '{"order": "K-1041", "on": "2025-03-14"}'),
        result(1, "anna_77 K-1041 K-2000 2025-03-14"),
        {"role": "assistant", "content": "I see order K-3000."},
        call(2, "{}"),
        result(2, "K-1041 K-2000 K-3000 and words"),
    ]
    assert known(messages) == [("2025-03-14", "K-1041", "anna_77"), ("K-1041", "K-3000")]


def test_nothing_that_comes_later_is_known() -> None:
    messages = [
        {"role": "user", "content": "Look."},
        call(1, "{}"),
        result(1, "K-1041"),
        {"role": "user", "content": "K-1041 is wrong."},
    ]
    assert known(messages) == [()]


def test_a_text_that_is_compressed_itself_makes_nothing_known() -> None:
    def conversation(mark: bool) -> Messages:
        parts = [
            {"type": "text", "text": "K-1041 K-1042", "compress": mark},
            {"type": "text", "text": "K-9000?"},
        ]
        return [{"role": "user", "content": parts}, call(1, "{}"), result(1, "K-1041 K-9000")]

    assert known(conversation(mark=True)) == [("K-9000",)]
    assert known(conversation(mark=False)) == [("K-1041", "K-9000")]


def test_other_blocks_know_nothing() -> None:
    parts = [{"type": "text", "text": "K-1041", "compress": True}, {"type": "text", "text": "K-1041?"}]
    (block,) = find_blocks(
        [{"role": "user", "content": "K-1041"}, {"role": "user", "content": parts}], "marked"
    )
    assert (block.is_tool_result, block.known) == (False, ())


def test_what_is_known_of_a_conversation_of_many_values_is_bounded() -> None:
    said = Said()
    for number in range(40):
        said.read(" ".join(f"K-{number}{at}" for at in range(4000)))
        said.known_in("a" * 200_000 + "1:" * 100_000)
    assert len(said.known_in(" ".join(f"K-0{at}" for at in range(4000)))) <= 2 * MOST_VALUES


def test_what_is_looked_through_and_kept_of_a_conversation_is_bounded() -> None:
    values = "".join(f"id{number:07d} " for number in range(MOST_CHARS // 10))
    said = Said()
    said.read(values[: MOST_CHARS // 2])
    assert len(said.known_in(values[: MOST_CHARS // 4])) == MOST_VALUES
    # A quarter is left of what the event loop looks through.
    assert said.known_in(" " * (MOST_CHARS // 4) + values) == ()
