"""Recounts: an honest reply is found to be one, and whatever is added to its counts is found."""

from __future__ import annotations

import hashlib
import json
import random
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

import models.embedded
from models.counted_tokens import PromptSource, TokenIds
from models.recounting import Vocabulary, read_reply, recounted

FOLDER = Path(models.embedded.__file__).parent / "tokenizer"
KNOWN = Vocabulary(FOLDER)
REQUEST = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "What costs 7 €?"}, {"type": "text", "text": "And 9?"}],
        },
    ]
}
TEXT = "Item 1 — the blue one — costs 7 €, item 2 costs 9 €."


def encoded(text: str) -> list[int]:
    return list(KNOWN.tokenizer.encode(text, add_special_tokens=False).ids)


def reply_of(
    request: Any,
    replies: list[list[int]],
    texts: list[str],
    *,
    prompt: list[int] | None = None,
    end: str = "stop",
    **said: Any,
) -> dict[str, Any]:
    """As pith would answer with these tokens, which it says are those of these texts."""
    assert KNOWN.template is not None
    source = PromptSource(KNOWN.sha256, hashlib.sha256(KNOWN.template.encode()).hexdigest())
    told = TokenIds([prompt or next(KNOWN.prompts(request))], replies, source)
    counts = {"prompt_tokens": len(told.prompts[0]), "completion_tokens": sum(map(len, replies))}
    record = {**counts, "tokens_sha256": told.sha256()}
    choices = [
        {"index": index, "finish_reason": end, "message": {"role": "assistant", "content": text}}
        for index, text in enumerate(texts)
    ]
    proof = {"record": json.dumps(record), "note": ""}
    return {
        "choices": choices,
        "usage": {**counts, **said},
        "service": {"metering": {"proof": proof}, "tokens": told.fields()},
    }


def wrong(request: Any, reply: Any) -> set[str]:
    return {one.what for one in recounted(request, reply, KNOWN) if one.fits is False}


@pytest.mark.parametrize("ends", [[], [min(KNOWN.special)]])
def test_an_honest_reply_is_found_right(ends: list[int]) -> None:
    reply = reply_of(REQUEST, [[*encoded(TEXT), *ends], encoded("7.")], [TEXT, "7."])
    assert [one for one in recounted(REQUEST, reply, KNOWN) if one.fits is not True] == []


def test_a_reply_that_a_stop_string_or_the_limit_ended_is_found_right() -> None:
    tokens = encoded(TEXT)
    stopped = {**REQUEST, "stop": ["costs"]}
    until = next(at for at in range(len(tokens)) if "costs" in KNOWN.tokenizer.decode(tokens[:at]))
    reply = reply_of(stopped, [tokens[:until]], [TEXT[: TEXT.index("costs")]])
    assert wrong(stopped, reply) == set()
    assert wrong(stopped, reply_of(stopped, [tokens[: until + 1]], [TEXT[: TEXT.index("costs")]])) != set()
    cut = encoded("7 €")[:-1]
    text = "".join(KNOWN.texts([1], cut))
    assert wrong(REQUEST, reply_of(REQUEST, [cut], [text], end="length")) == set()
    assert wrong(REQUEST, reply_of(REQUEST, [[*cut, min(KNOWN.special)]], [text], end="length")) != set()
    assert wrong(REQUEST, reply_of(REQUEST, [cut], [text])) != set(), (
        "a reply that stops has no half character"
    )


@pytest.mark.parametrize("paddings", [30, pytest.param(300, marks=pytest.mark.long)])
def test_every_padding_of_a_reply_is_caught(paddings: int) -> None:
    chance, tokens = random.Random(5), encoded(TEXT)
    for _ in range(paddings):
        padded, size = list(tokens), KNOWN.tokenizer.get_vocab_size()
        for _ in range(chance.choice([1, 1, 2, len(tokens) // 10])):
            token = chance.choice([chance.randrange(size), chance.choice(tokens), min(KNOWN.special)])
            padded.insert(chance.randint(0, len(padded) - 1), token)
        assert wrong(REQUEST, reply_of(REQUEST, [padded], [TEXT])) == {"text of choice 0"}, padded


def test_a_prompt_with_more_tokens_than_its_request_is_caught() -> None:
    prompt = [*next(KNOWN.prompts(REQUEST)), encoded(" ")[0]]
    assert wrong(REQUEST, reply_of(REQUEST, [encoded(TEXT)], [TEXT], prompt=prompt)) == {"prompt"}


def test_counts_or_a_promise_of_other_tokens_are_caught() -> None:
    reply = reply_of(REQUEST, [encoded(TEXT)], [TEXT], prompt_tokens=100, completion_tokens=100)
    assert wrong(REQUEST, reply) == {"tokens of the prompt", "tokens of the reply"}
    honest = reply_of(REQUEST, [encoded(TEXT)], [TEXT])
    for name, value in (("prompt_tokens", 99), ("completion_tokens", 99), ("tokens_sha256", "0" * 64)):
        forged = deepcopy(honest)
        proof = forged["service"]["metering"]["proof"]
        proof["record"] = json.dumps({**json.loads(proof["record"]), name: value})
        assert len(wrong(REQUEST, forged)) == 1, name


def test_another_tokenizer_is_named(tmp_path: Path) -> None:
    other = tmp_path / "tokenizer.json"
    other.write_bytes((FOLDER / "tokenizer.json").read_bytes() + b"\n")
    found = recounted(REQUEST, reply_of(REQUEST, [encoded(TEXT)], [TEXT]), Vocabulary(other))
    assert {one.what: one.fits for one in found if one.fits is not True} == {
        "tokenizer": False,
        "prompt": None,
    }


def test_of_a_compressed_prompt_the_count_before_is_recounted() -> None:
    reply = reply_of(REQUEST, [encoded(TEXT)], [TEXT], prompt=encoded("less"))
    before = len(next(KNOWN.prompts(REQUEST)))
    reply["service"]["compression"] = {"original_tokens": before, "blocks": [{"compressed": True}]}
    assert wrong(REQUEST, reply) == set()
    reply["service"]["compression"]["original_tokens"] += 5
    assert wrong(REQUEST, reply) == {"prompt before its compression"}


def test_of_thoughts_and_calls_what_the_reply_does_not_show_is_named() -> None:
    raw = '<think>\nIt costs 7.\n</think>\n\nIt is this.\n<call>{"name": "price", "arguments": {"of": "item 1"}}</call>'
    pieces = [{"name": "price", "arguments": '{"of": '}, {"arguments": '"item 1"}'}]
    reply = reply_of(REQUEST, [encoded(raw)], ["It is this."])
    message = reply["choices"][0]["message"]
    message |= {"reasoning": "It costs 7.", "tool_calls": [{"function": one} for one in pieces]}
    told = recounted(REQUEST, reply, KNOWN)[-1]
    rest = '<think>\n\n</think>\n\n\n<call>{"name": "", "arguments": }</call>'
    assert told.fits is None and repr(rest) in told.said
    assert f"some {len(encoded(rest))} tokens more" in told.said
    for part in ("reasoning", "content"):
        assert wrong(
            REQUEST, {**reply, "choices": [{**reply["choices"][0], "message": {**message, part: "Else"}}]}
        ) == {"text of choice 0"}
    deltas = [
        {"role": "assistant", "content": None, "reasoning": "It costs 7."},
        {"content": "It is this.", "tool_calls": None},
        *({"tool_calls": [{"index": 0, "function": one}]} for one in pieces),
    ]
    events: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    events.append({"choices": [], "usage": reply["usage"], "service": reply["service"]})
    read = read_reply("".join(f"data: {json.dumps(event)}\n\n" for event in events))
    assert recounted(REQUEST, read, KNOWN)[-1] == told


def test_a_stream_is_read_as_the_reply_that_it_is() -> None:
    whole = reply_of(REQUEST, [encoded(TEXT)], [TEXT])
    deltas = [{"role": "assistant", "content": ""}, {"content": TEXT[:9]}, {"content": TEXT[9:]}]
    events: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    events.append({"choices": [], "usage": whole["usage"], "service": whole["service"]})
    lines = [f"data: {json.dumps(event)}\n\n" for event in events]
    read = read_reply("".join([*lines, "data: [DONE]\n\n"]))
    assert read["choices"][0]["message"]["content"] == TEXT
    assert wrong(REQUEST, read) == set() == wrong(REQUEST, read_reply(json.dumps(whole)))
