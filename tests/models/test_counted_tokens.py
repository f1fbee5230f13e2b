"""Hashes of tokens: the same however a reply's tokens became known, and others for any other tokens."""

from __future__ import annotations

import hashlib
import json

from hypothesis import given
from hypothesis import strategies as st

from models.counted_tokens import GrowingReply, PromptSource, TokenIds, ids_sha256, token_ids_of

ids = st.lists(st.integers(0, 2**32 - 1), max_size=30)


@given(ids, st.data())
def test_a_reply_has_one_hash_whether_its_tokens_were_handed_out_or_seen_before(
    reply: list[int], data: st.DataObject
) -> None:
    growing, handed_out = GrowingReply(), 0
    while handed_out < len(reply):
        seen = data.draw(st.integers(handed_out, len(reply)))
        growing.see(reply[:seen])
        assert growing.sha256() == ids_sha256(reply[: max(seen, len(growing.ids))])
        until = data.draw(st.integers(handed_out + 1, len(reply)))
        growing.give(reply[handed_out:until])
        handed_out = until
    assert (list(growing.ids), growing.sha256()) == (reply, ids_sha256(reply))


@given(st.lists(ids, max_size=3), st.lists(ids, max_size=3), st.sampled_from([None, "a" * 64]))
def test_what_a_reply_tells_is_read_back(
    prompts: list[list[int]], replies: list[list[int]], template: str | None
) -> None:
    told = TokenIds(prompts, replies, PromptSource("b" * 64, template))
    fields = json.loads(json.dumps(told.fields()))
    read = token_ids_of(fields)
    assert read.sha256() == told.sha256() == fields["tokens_sha256"]
    assert read.fields() == fields


def test_the_hash_is_what_the_documentation_says() -> None:
    def sha(data: bytes) -> str:
        return hashlib.sha256(data).hexdigest()

    parts = {
        "prompts": [sha(bytes([1, 0, 0, 0, 2, 1, 0, 0]))],
        "replies": [sha(bytes([255, 255, 255, 255])), sha(b"")],
        "template": None,
        "tokenizer": "c" * 64,
    }
    joined = sha(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode())
    assert TokenIds([[1, 258]], [[2**32 - 1], []], PromptSource("c" * 64)).sha256() == joined


@given(ids, ids)
def test_no_other_tokens_have_the_hash(one: list[int], other: list[int]) -> None:
    told, changed = TokenIds([one], [other]), TokenIds([[*one, *other[:1]]], [other[1:]])
    assert (told.sha256() == changed.sha256()) == (not other)
