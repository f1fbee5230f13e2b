"""Which texts of a conversation may be compressed, and for which query: as the conversation's beginning says alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import InvalidField
from serve.prompt_compression.blocks import Block, find_blocks, has_marks

Messages = list[dict[str, Any]]
CALL = {"id": "c1", "type": "function", "function": {"name": "order", "arguments": '{"id": 4417}'}}
AGENT: Messages = [
    {"role": "system", "content": "You help with orders."},
    {"role": "user", "content": "Where is order 4417?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "Order 4417 left on 3 May."},
    {"role": "assistant", "content": "It left on 3 May."},
    {"role": "user", "content": "And its parcels?"},
]


def part(text: str, mark: Any = ...) -> dict[str, Any]:
    return {"type": "text", "text": text} | ({} if mark is ... else {"compress": mark})


def places(blocks: list[Block]) -> list[tuple[int, tuple[int, ...]]]:
    return [(block.message, block.parts) for block in blocks]


def test_a_tool_result_is_compressed_for_the_question_before_it_and_the_call_that_gave_it() -> None:
    (block,) = find_blocks(AGENT, "marked")
    assert (block.message, block.parts, block.text) == (3, (), "Order 4417 left on 3 May.")
    assert block.query == 'Where is order 4417?\norder {"id": 4417}'


def test_a_marked_part_is_compressed_for_the_last_part_of_its_message() -> None:
    messages = [{"role": "user", "content": [part("passages", True), part("notes"), part("Who won?")]}]
    assert find_blocks(messages, "marked") == [Block(0, (0,), ("passages",), "Who won?")]


def test_a_marked_text_by_itself_is_compressed_for_the_question_before_it_or_for_its_own_last_paragraph() -> (
    None
):
    alone = {"role": "user", "content": [part("One.\n\nTwo.\n\nWho won?\n", True)]}
    assert find_blocks([alone], "marked")[0].query == "Who won?"
    asked = {"role": "user", "content": "Which of these fits?"}
    assert find_blocks([asked, alone], "marked")[0].query == "Which of these fits?"


def test_with_scope_all_every_text_of_a_user_message_but_its_last_is_a_block() -> None:
    messages = [
        *AGENT,
        {"role": "user", "content": [part("first"), part("second"), part("asks", False), part("last")]},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": "a string has one text only"},
    ]
    assert places(find_blocks(messages, "all")) == [(3, ()), (6, (0, 1))]
    assert places(find_blocks(messages, "marked")) == [(3, ())]


@pytest.mark.parametrize("role", ["system", "developer"])
def test_instructions_are_never_compressed_even_if_marked(role: str) -> None:
    assert find_blocks([{"role": role, "content": [part("rules", True), part("more")]}], "all") == []


def test_a_tool_result_may_be_excepted() -> None:
    messages = [*AGENT[:3], {"role": "tool", "tool_call_id": "c1", "content": [part("a", False), part("b")]}]
    assert places(find_blocks(messages, "marked")) == [(3, (1,))]


def test_a_tool_result_without_its_call_is_compressed_too() -> None:
    (block,) = find_blocks([{"role": "tool", "content": "Order 4417 left."}], "marked")
    assert block.query == ""


def test_without_settings_only_marked_parts_are_blocks() -> None:
    marked = {"role": "user", "content": [part("passages", True), part("Who won?")]}
    assert has_marks([marked])
    assert not has_marks(AGENT)
    assert places(find_blocks([*AGENT, marked], "only_marked")) == [(6, (0,))]


@pytest.mark.parametrize("mark", ["yes", 1, {}, []])
def test_a_mark_is_true_or_false(mark: Any) -> None:
    with pytest.raises(InvalidField) as refused:
        find_blocks([{"role": "user", "content": [part("x", mark)]}], "marked")
    assert refused.value.loc == ("messages", 0, "content", 0, "compress")


def test_a_query_of_a_long_message_is_its_two_ends() -> None:
    messages = [{"role": "user", "content": "begin" + "x" * 50_000 + "end"}, {"role": "tool", "content": "t"}]
    (block,) = find_blocks(messages, "marked")
    assert block.query.startswith("begin")
    assert block.query.endswith("end")
    assert len(block.query) < 3000


def test_neighbouring_parts_with_one_query_are_compressed_together() -> None:
    passages = [part(f"passage {number}", True) for number in range(3)]
    messages = [{"role": "user", "content": [*passages, part("aside"), part("more", True), part("Who won?")]}]
    joined, alone = find_blocks(messages, "marked")
    assert (joined.parts, joined.text) == ((0, 1, 2), "passage 0\n\npassage 1\n\npassage 2")
    assert alone.parts == (4,)


def test_json_is_compressed_by_itself() -> None:
    parts_ = [part('{"a": 1}', True), part("text", True), part("text", True), part('[{"a": 2}]', True)]
    found = find_blocks([{"role": "user", "content": [*parts_, part("Who won?")]}], "marked")
    assert [block.parts for block in found] == [(0,), (1, 2), (3,)]


def test_what_is_compressed_together_is_bounded() -> None:
    large = [part("x" * 200_000, True) for _ in range(3)]
    found = find_blocks([{"role": "user", "content": [*large, part("Who won?")]}], "marked")
    assert [block.parts for block in found] == [(0,), (1,), (2,)]


texts = st.text(alphabet="ab \n", max_size=8)
parts = st.builds(part, texts, st.sampled_from([..., None, True, False]))
calls = st.lists(
    st.builds(
        lambda id_, name: {"id": id_, "type": "function", "function": {"name": name, "arguments": "{}"}},
        st.sampled_from(["c1", "c2"]),
        texts,
    ),
    max_size=2,
)
messages_of_any_kind = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["system", "developer", "user", "assistant", "tool", "function"]),
        "content": st.one_of(st.none(), texts, st.lists(parts, max_size=3)),
    },
    optional={"tool_calls": calls, "tool_call_id": st.sampled_from(["c1", "c2", "c3"])},
)


@given(
    st.lists(messages_of_any_kind, max_size=8),
    st.lists(messages_of_any_kind, max_size=4),
    st.sampled_from(["marked", "all", "only_marked"]),
)
def test_what_comes_later_changes_no_block_and_no_query(
    before: Messages, after: Messages, scope: Any
) -> None:
    grown = find_blocks([*before, *after], scope)
    assert [block for block in grown if block.message < len(before)] == find_blocks(before, scope)


def test_thousands_of_small_parts_are_one_block() -> None:
    messages = [{"role": "user", "content": [*[part("a")] * 13_000, part("Which?")]}]
    (block,) = find_blocks(messages, "all")
    assert len(block.parts) == 13_000
