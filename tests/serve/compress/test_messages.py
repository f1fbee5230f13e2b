"""Messages as the JSON that is compressed, and where their kept parts stand: whatever the messages."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from compression.source.units import Slice
from serve.compress.request import canonical
from serve.compress.service import kept_fields, kept_of_messages
from tests.compression.conversation.chats import MESSAGES, text_at


@given(MESSAGES)
def test_nothing_is_lost_or_moved_on_the_way_to_json(messages: list[dict[str, Any]]) -> None:
    text = canonical(messages)
    assert json.loads(text) == messages and json.dumps(json.loads(text)) == json.dumps(messages)
    assert "\n" not in text and canonical(json.loads(text)) == text


@given(MESSAGES, st.integers(0, 2000), st.integers(0, 2000))
def test_spans_of_messages_are_of_their_texts(messages: list[dict[str, Any]], one: int, other: int) -> None:
    text = canonical(messages)
    for span in kept_of_messages(text, [Slice(0, len(text))]):
        assert (span["start"], span["end"]) == (0, len(text_at(messages[span["message"]], path_of(span))))
    start, end = sorted((min(one, len(text)), min(other, len(text))))
    for span in kept_of_messages(text, [Slice(start, end)]) if start < end else []:
        part = text_at(messages[span["message"]], path_of(span))[span["start"] : span["end"]]
        # But for escapes, which a slice between any two places may cut.
        assert "\\" in text[start:end] or part in text[start:end]


def path_of(span: dict[str, Any]) -> tuple[int, ...]:
    return tuple(step for step in (span["part"], span["inner"]) if step is not None)


@given(
    st.text(st.characters(exclude_categories=("Cs",)), max_size=60), st.lists(st.integers(0, 60), max_size=8)
)
def test_characters_and_bytes_name_the_same_place(text: str, ends: list[int]) -> None:
    cuts = sorted({min(end, len(text)) for end in ends})
    slices = [Slice(*pair) for pair in zip(cuts[::2], cuts[1::2], strict=False)]
    data = text.encode()
    for span, (start, end) in zip(kept_fields(text, slices[::-1]), slices[::-1], strict=True):
        assert (span["start"], span["end"]) == (start, end)
        assert data[span["bytes"]["start"] : span["bytes"]["end"]].decode() == text[start:end]
