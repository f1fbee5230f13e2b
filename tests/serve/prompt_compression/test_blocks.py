"""Blocks of a conversation with their queries, as its beginning says, and the cuts of blocks joined in one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compression.conversation.queries import MOST_CHARS, MOST_VALUES, Said
from compression.source.units import Slice
from models.errors import InvalidField
from serve.prompt_compression.blocks import JOINT, Block, cut, find_blocks, has_marks
from tests.work import growth

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


TEXTS = ["One two three.", "Four five.", "Six."]
WHOLE = JOINT.join(TEXTS)


def slices(*words: str) -> list[Slice]:
    return [Slice(WHOLE.index(word), WHOLE.index(word) + len(word)) for word in words]


def test_each_text_gets_what_was_kept_of_it() -> None:
    assert cut(TEXTS, slices("One ", "three.", "Six."), mark_gaps=False) == ("One three.", "", "Six.")


def test_a_gap_inside_a_text_is_marked_and_one_between_texts_is_not() -> None:
    assert cut(TEXTS, slices("One ", "three.", "Six."), mark_gaps=True) == ("One […] three.", "", "Six.")


def test_a_slice_over_a_joint_belongs_to_both_texts() -> None:
    assert cut(TEXTS, [Slice(0, len(WHOLE))], mark_gaps=True) == tuple(TEXTS)


@given(st.lists(st.text(alphabet="ab \n", max_size=6), min_size=1, max_size=5), st.data())
def test_nothing_is_lost_and_nothing_is_added(texts: list[str], data: st.DataObject) -> None:
    whole = JOINT.join(texts)
    ends = sorted(data.draw(st.sets(st.integers(0, len(whole)), max_size=6)))
    kept = [Slice(a, b) for a, b in zip(ends[::2], ends[1::2], strict=False)]
    outputs = cut(texts, kept, mark_gaps=False)
    joints = "".join(JOINT[: min(b, at + 2) - max(a, at)] for a, b, at in _over_joints(texts, kept))
    assert sum(map(len, outputs)) == sum(piece.end - piece.start for piece in kept) - len(joints)
    assert cut(texts, [Slice(0, len(whole))], mark_gaps=True) == tuple(texts)


def _over_joints(texts: list[str], kept: list[Slice]) -> list[tuple[int, int, int]]:
    found, at = [], 0
    for text in texts[:-1]:
        at += len(text)
        found += [(piece.start, piece.end, at) for piece in kept if piece.start < at + 2 and piece.end > at]
        at += len(JOINT)
    return found


def test_many_slices_of_many_texts_are_cut_in_one_pass() -> None:
    def cutting(size: int) -> Callable[[], object]:
        kept = [Slice(at, at + 1) for at in range(0, 4 * size, 2)]
        return lambda: cut(["ab"] * size, kept, mark_gaps=True)

    assert growth(cutting, 300) < 1.2


def test_each_of_many_gaps_in_one_text_is_marked() -> None:
    text = "kept left " * 20_000
    kept = [Slice(at, at + 5) for at in range(0, len(text), 10)]
    (output,) = cut([text], kept, mark_gaps=True)
    assert output.startswith("kept […] kept […] ") and output.count("kept") == 20_000


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
