"""Conversations of every kind for the tests, and what makes what is left of one a conversation still."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from compression.conversation import spans_by_message
from compression.pipeline.compression_model import CompressionResult
from compression.source.units import Segmentation

IDS = st.sampled_from(["call_1", "call_2", "call_3"])
NAMES = st.sampled_from(["get_order", "book", 'odd"name\\'])
INNER = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=6), inner, max_size=5),
    max_leaves=12,
)
PROSE = st.lists(
    st.sampled_from(
        [
            "One two. ",
            'Said "x."\n',
            "é\\n! ",
            "他来了。",
            "| a | b |\n|---|---|\n| 1 | 2 |\n",
            "\n\n",
            "- an item\n",
            "😀 grin. ",
            "user: hello\n",
            "\x00",
            "\t",
            "# Head\n",
            "```\ncode\n```\n",
            "ERROR it broke\n",
        ]
    ),
    max_size=30,
).map("".join)
TEXT = st.one_of(
    PROSE,
    st.text(st.characters(exclude_categories=("Cs",)), max_size=40),
    st.builds(json.dumps, INNER, indent=st.sampled_from([None, 1])),
    st.builds(lambda value: json.dumps([value] * 12), INNER),
)
PART = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, TEXT),
    st.builds(lambda url: {"type": "image_url", "image_url": {"url": url}}, st.text(max_size=8)),
    st.builds(
        lambda id, name, value: {"type": "tool_use", "id": id, "name": name, "input": value},
        IDS,
        NAMES,
        INNER,
    ),
    st.builds(
        lambda id, content: {"type": "tool_result", "tool_use_id": id, "content": content},
        IDS,
        TEXT | st.lists(st.builds(lambda text: {"type": "text", "text": text}, TEXT), max_size=3),
    ),
)
CALL = st.builds(
    lambda id, name, value: {
        "id": id,
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(value)},
    },
    IDS,
    NAMES,
    INNER,
)
MESSAGE = st.one_of(
    st.builds(
        lambda role, content: {"role": role, "content": content},
        st.sampled_from(["system", "user", "assistant", "développeur"]),
        TEXT | st.none() | st.lists(PART, max_size=4),
    ),
    st.builds(
        lambda content, calls: {"content": content, "tool_calls": calls, "role": "assistant"},
        TEXT | st.none(),
        st.lists(CALL, max_size=3),
    ),
    st.builds(lambda id, text: {"role": "tool", "tool_call_id": id, "content": text}, IDS, TEXT),
    st.builds(
        lambda name, value: {
            "role": "assistant",
            "function_call": {"name": name, "arguments": json.dumps(value)},
        },
        NAMES,
        INNER,
    ),
    st.builds(lambda name, text: {"role": "function", "name": name, "content": text}, NAMES, TEXT),
)
FEW = st.lists(MESSAGE, min_size=1, max_size=14).filter(
    lambda messages: any("content" in message or "function_call" in message for message in messages)
)


def call(identity: str, name: str, **arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": identity, "type": "function", "function": function}],
    }


def answer(identity: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": identity, "name": "look_up", "content": content}


def random_chat(chance: random.Random) -> list[Any]:
    """A chat of some length, of one dialect or of all; hypothesis by itself draws hardly more than a few messages."""
    words = [
        "order",
        "seat 7C",
        "naïve “x”",
        "他来了。",
        "\U0001f600",
        "no",
        "- item\n",
        "\n\n",
        'a "b"',
        "\\n",
        "user: x\n",
    ]

    def text(most: int = 30) -> str:
        if chance.random() < 0.25:
            return json.dumps(
                {f"k{n}": text(max(1, most // 4)) for n in range(chance.randrange(most))},
                indent=chance.choice([None, 1]),
            )
        return " ".join(
            chance.choice(words) + chance.choice(["", ".", ".\n"]) for _ in range(chance.randrange(most))
        )

    def identity() -> str:
        return f"call_{chance.randrange(5)}"

    def part() -> Any:
        kinds: list[Any] = [
            {"type": "text", "text": text()},
            {"type": "image_url", "image_url": {"url": text(3)}},
        ]
        kinds.append({"type": "tool_use", "id": identity(), "name": "f", "input": {"q": text(5)}})
        content = chance.choice(
            [text(), [{"type": "text", "text": text()} for _ in range(chance.randrange(3))]]
        )
        kinds.append({"type": "tool_result", "tool_use_id": identity(), "content": content})
        return chance.choice([kinds[0], *kinds])

    def message() -> Any:
        arguments = {"name": "f", "arguments": json.dumps({"q": text(5)})}
        calls = [
            {"id": identity(), "type": "function", "function": arguments} for _ in range(chance.randrange(3))
        ]
        return chance.choice(
            [
                {"role": chance.choice(["system", "user", "assistant"]), "content": text()},
                {
                    "role": chance.choice(["user", "assistant"]),
                    "content": [part() for _ in range(chance.randrange(5))],
                },
                {"role": "assistant", "content": chance.choice([None, text(9)]), "tool_calls": calls},
                {"role": "tool", "tool_call_id": identity(), "content": text()},
                {"role": "assistant", "function_call": arguments, "content": None},
                {"role": "function", "name": "f", "content": text()},
            ]
        )

    return [message() for _ in range(chance.randrange(1, 24))]


CHATS = st.integers(0, 2**32).map(lambda seed: random_chat(random.Random(seed)))
MESSAGES = st.one_of(FEW, CHATS, CHATS)


class ChanceScorer:
    """Scores by chance, the same for the same number of units."""

    def __init__(self, chance: Any) -> None:
        self._chance = chance

    def score(self, query: str, text: Segmentation) -> Sequence[float]:
        del query
        return [self._chance.random() for _ in text.units]


def bare(value: Any) -> Any:
    """A message, or a part of one, without its texts."""
    left = dict(value)
    if isinstance(value.get("content"), str):
        left["content"] = ""
    elif isinstance(value.get("content"), list):
        left["content"] = [bare(part) for part in value["content"] if part.get("type") != "text"]
    return left


def texts_of(message: Any) -> list[str]:
    """All texts of a message that are not empty, in order."""
    content = message.get("content")
    if isinstance(content, str):
        return [content] if content else []
    parts = content if isinstance(content, list) else []
    found = [[part["text"]] if part["type"] == "text" else texts_of(part) for part in parts]
    return [text for texts in found for text in texts if text]


def text_at(message: Any, path: Sequence[int]) -> str:
    content = message["content"]
    for number in path:
        content = content[number]
        if isinstance(content, dict):
            content = content["text"] if content["type"] == "text" else content["content"]
    return str(content)


def pairs(messages: Sequence[Any]) -> set[tuple[int, int]]:
    """Each result with its call, as numbers of messages: the nearest before it that waits, else the last of its id."""
    calls: list[list[Any]] = []
    found = set()
    for number, message in enumerate(messages):
        for wanted in answers_of(message):
            same = [call for call in calls if wanted in call[1]]
            waiting = [call for call in same if not call[2]]
            if waiting or same:
                chosen = (waiting or same)[-1]
                chosen[2] = True
                found.add((chosen[0], number))
        calls += [[number, call, False] for call in calls_of(message)]
    return found


def answers_of(message: Any) -> list[str]:
    parts = message.get("content")
    found = (
        [p["tool_use_id"] for p in parts if p.get("type") == "tool_result"] if isinstance(parts, list) else []
    )
    if "tool_call_id" in message:
        found.append(message["tool_call_id"])
    named = [f"name {message['name']}"] if message["role"] == "function" else []
    return [f"id {identity}" for identity in found] + named


def calls_of(message: Any) -> list[set[str]]:
    parts = message.get("content")
    used = [p for p in parts if p.get("type") == "tool_use"] if isinstance(parts, list) else []
    older = [{f"name {message['function_call']['name']}"}] if "function_call" in message else []
    return [{f"id {call['id']}"} for call in used + message.get("tool_calls", [])] + older


def is_conversation_still(
    source: str, messages: Sequence[Any], result: CompressionResult, *, has_marks: bool = False
) -> list[Any]:
    """Asserts all that a caller may rely on; gives the messages that are left. With `has_marks`, gaps are marked."""
    left = json.loads(result.output)
    left = left["messages"] if isinstance(left, dict) else left
    kept = spans_by_message(source, result.kept)
    numbers = [message.index for message in kept]
    assert len(left) == len(kept) and numbers == sorted(set(numbers))
    for message, about in zip(left, kept, strict=True):
        whole = messages[about.index]
        assert bare(message) == bare(whole)
        spans = [(text_at(whole, text.path), text.spans) for text in about.texts]
        kept_texts = ["".join(text[start:end] for start, end in found) for text, found in spans]
        assert has_marks or [text for text in kept_texts if text] == texts_of(message)
    for call, answer in pairs(messages):
        assert (call in numbers) == (answer in numbers)
    return list(left)
