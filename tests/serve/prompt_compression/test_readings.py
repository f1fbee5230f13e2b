"""Values of texts that were read lately: by project, bounded, and the same as without them."""

from __future__ import annotations

from functools import partial
from typing import Any

from compression.conversation.queries import values_in
from serve.prompt_compression.blocks import find_blocks
from serve.prompt_compression.readings import OF_A_TEXT, Readings

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"order": "K-1041"}'}}
MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "Where is K-9000?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": '{"orders": ["K-1041", "K-9000", "K-7"]}'},
]


def test_blocks_are_the_same_with_readings_the_first_time_and_later() -> None:
    values_of = partial(Readings().values, "project")
    expected = find_blocks(MESSAGES, "marked")
    assert expected[0].known == ("K-1041", "K-9000")
    assert [find_blocks(MESSAGES, "marked", values_of) for _ in range(2)] == [expected, expected]


def test_a_text_is_read_once_for_a_project_and_again_for_another() -> None:
    readings = Readings()
    first = readings.values("one", "K-1041 and K-9000")
    assert list(first) == list(values_in("K-1041 and K-9000"))
    assert readings.values("one", "K-1041 and K-9000") is first
    assert readings.values("two", "K-1041 and K-9000") is not first


def test_what_was_not_asked_for_longest_goes_first_and_no_more_is_kept() -> None:
    readings = Readings(most_values=3 * (2 + OF_A_TEXT))
    texts = [f"K-{number}041 and K-{number}9000" for number in range(4)]
    found = [readings.values("one", text) for text in texts[:3]]
    assert readings.values("one", texts[0]) is found[0]
    readings.values("one", texts[3])
    assert readings.values("one", texts[0]) is found[0]
    assert readings.values("one", texts[1]) is not found[1]


def test_a_text_of_more_values_than_are_kept_is_not_kept() -> None:
    readings = Readings(most_values=8)
    text = " ".join(f"K-{number}041" for number in range(20))
    assert len(readings.values("one", text)) == 20
    assert readings.values("one", text) is not readings.values("one", text)
