"""Conversations that a hostile caller may send: bounded, and conversations still."""

import json
from collections.abc import Callable

import pytest

from compression.pipeline.compression_model import CompressionResult
from compression.pipeline.spec import CompressionSettings
from compression.segmentation import SegmentationSettings, segment
from tests.compression.conversation.chats import answer, call

Compress = Callable[..., CompressionResult]
NESTED = '[{"role":"user","content":"a","x":' + "[" * 100_000 + "]" * 100_000 + "}]"
HOSTILE = {
    "empty messages": [{"role": "user", "content": ""}] * 3_000,
    "a word each": [{"role": "user", "content": "word"}] * 3_000,
    "one result for many calls": [
        *[call("same", "f", number=number) for number in range(1_000)],
        answer("same", "the result of one of them"),
    ],
    "many calls in one": [
        {
            "role": "assistant",
            "tool_calls": [
                {"id": str(n), "function": {"name": "f", "arguments": "{}"}} for n in range(3_000)
            ],
        },
        answer("7", "seven"),
    ],
    "many parts": [{"role": "user", "content": [{"type": "text", "text": "one"}] * 3_000}],
    "all in one": [{"role": "user", "content": 'It said "no".\n' * 3_000}],
    "many systems": [{"role": "system", "content": "Be kind."}] * 1_000,
    "results before calls": [answer(str(n), "early") for n in range(300)]
    + [call(str(n), "f") for n in range(300)],
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("most_units", [7, 100, 10_000])
def test_hostile_conversations_have_a_bound_and_stay_conversations(
    compress: Compress, name: str, most_units: int
) -> None:
    source = json.dumps(HOSTILE[name])
    bounded = SegmentationSettings(most_units=most_units)
    assert len(segment(source, bounded).units) <= most_units
    result = compress(source, 0.3, settings=CompressionSettings(segmentation=bounded))
    left = json.loads(result.output)
    calls = [call["id"] for message in left for call in message.get("tool_calls", [])]
    results = [message["tool_call_id"] for message in left if message["role"] == "tool"]
    if name != "results before calls":
        assert set(results) <= set(calls)
    assert result.receipt.compression_ratio <= 0.3


def test_what_is_nested_too_deep_is_no_conversation() -> None:
    assert segment(NESTED).origin is None
