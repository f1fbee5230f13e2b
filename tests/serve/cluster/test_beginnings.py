"""Keys of prompts' beginnings: alike where prompts begin alike, in every process, and for no others."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from models.engine import EngineRequest
from serve.cluster.replicas.cached_beginnings import (
    BLOCK_BYTES,
    MOST_KEYS,
    MOST_OF_TOOLS,
    MOST_TOKENS,
    beginnings,
)

LONG = "You are a patient librarian who answers in one sentence. " * 20


def request(*contents: Any, salt: str = "workspace") -> EngineRequest:
    messages = tuple({"role": "user", "content": content} for content in contents)
    return EngineRequest("id", "model", messages, 16, True, salt)


def test_a_longer_conversation_begins_like_the_shorter_one() -> None:
    shorter, longer = beginnings(request(LONG)), beginnings(request(LONG, "And then?", "Well."))
    assert longer[: len(shorter)] == shorter
    assert len(shorter) == len(f"user:{LONG};") // BLOCK_BYTES


def test_a_prompt_that_differs_early_shares_nothing_after_it() -> None:
    assert not set(beginnings(request(LONG))) & set(beginnings(request("!" + LONG[1:])))


@pytest.mark.parametrize(
    "other", [{"cache_salt": "other"}, {"model_id": "adapter"}, {"adapter_folder": "version-2"}]
)
def test_what_shares_no_cache_shares_no_beginning(other: dict[str, str]) -> None:
    ours = request(LONG)
    assert not set(beginnings(ours)) & set(beginnings(replace(ours, **other)))


def test_a_short_prompt_has_no_key_and_a_huge_one_no_more_than_the_bound() -> None:
    assert beginnings(request("hi")) == []
    assert len(beginnings(request("word " * 100_000))) == MOST_KEYS
    assert len(beginnings(request(*["é"] * 100_000))) == MOST_KEYS


def test_of_a_prompt_that_goes_on_and_on_no_more_is_read_than_counts() -> None:
    class Counted(dict[str, Any]):
        reads = 0

        def get(self, name: str, default: Any = None) -> Any:
            Counted.reads += 1
            return super().get(name, default)

    messages = tuple(Counted(role="user", content=LONG) for _ in range(1000))
    beginnings(EngineRequest("id", "model", messages, 16, True, "salt"))
    assert Counted.reads < 2 * 40


def test_parts_of_a_content_and_prompts_of_tokens_are_told_apart() -> None:
    def part(text: str) -> list[dict[str, Any]]:
        return [{"type": "image_url", "image_url": {"url": text}}, {"type": "text", "text": LONG}]

    ours, theirs = beginnings(request(part("a" + LONG))), beginnings(request(part("b" + LONG)))
    assert ours and not set(ours) & set(theirs)
    tokens = replace(request(), prompts=(tuple(range(1000)),))
    assert beginnings(tokens)[:3] == beginnings(replace(tokens, prompts=(tuple(range(2000)),)))[:3]
    assert not set(beginnings(tokens)) & set(beginnings(replace(tokens, prompts=(tuple(range(1, 1001)),))))


def test_a_content_without_texts_and_tokens_of_any_size_are_read_no_further_either() -> None:
    parts = [{"type": "input_audio", "input_audio": {"data": "x", "more": list(range(1000))}}] * 100_000
    assert len(beginnings(request(parts))) == MOST_KEYS
    wide = [{"type": "text", "text": LONG, **{f"field {number}": 1 for number in range(100_000)}}]
    assert beginnings(request(wide))[:2] == beginnings(request([{"type": "text", "text": LONG}]))[:2]
    assert (
        len(beginnings(replace(request(), prompts=((10**5000,) * 100_000,))))
        == MOST_TOKENS * 4 // BLOCK_BYTES
    )


def test_every_process_has_the_same_keys() -> None:
    program = (
        "from models.engine import EngineRequest\n"
        "from serve.cluster.replicas.cached_beginnings import beginnings\n"
        "asked = EngineRequest('id', 'model', ({'role': 'user', 'content': 'word ' * 200},), 16, True, 'workspace')\n"
        "print(beginnings(asked))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(beginnings(request("word " * 200)))


def test_tools_are_part_of_a_prompts_beginning_whatever_their_number() -> None:
    def with_tools(*names: str) -> EngineRequest:
        tools = [{"type": "function", "function": {"name": name, "description": LONG}} for name in names]
        return replace(request("hi"), options={"tools": tools})

    assert beginnings(with_tools("look_up")) == beginnings(with_tools("look_up")) != []
    assert not set(beginnings(with_tools("look_up"))) & set(beginnings(with_tools("pay")))
    many = [f"tool_{number}" for number in range(1000)]
    assert len(beginnings(with_tools(*many))) <= MOST_OF_TOOLS // BLOCK_BYTES + 1
