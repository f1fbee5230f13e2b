"""Which conversation a chat belongs to. All of its turns begin alike, so they share one side of the holdout."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from billing.caller import Caller

HASH_BYTES = 16
SHARE_BYTES = 8
USER = frozenset({"user"})
NO_INSTRUCTION = frozenset({"assistant", "tool", "function"})


def conversation_of(messages: Sequence[Mapping[str, Any]], caller: Caller, key: bytes) -> str:
    """A hash of the conversation's start under the server's `key`: 32 hex digits that reveal nothing of it, and differ
    between projects."""
    digest = hashlib.blake2b(digest_size=HASH_BYTES, key=key)
    digest.update(caller.project_id.encode())
    for message in _start(messages):
        digest.update(b"\0" + _written({"role": message["role"], "content": message.get("content")}))
    return digest.hexdigest()


def _start(messages: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Up to and with the first message of a user; of a conversation without one, the first that is no instruction."""
    for roles in (USER, NO_INSTRUCTION):
        for index, message in enumerate(messages):
            if message["role"] in roles:
                return messages[: index + 1]
    return messages


def _written(start: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(start, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        # A number or a character that orjson does not write.
        return json.dumps(start, sort_keys=True).encode()


def is_held_out(conversation: str, share: float) -> bool:
    """Whether this conversation is in the held-out `share`. Its hash decides, so each turn gets the same answer."""
    drawn = int(conversation[: 2 * SHARE_BYTES], 16)
    return drawn < int(share * 2 ** (8 * SHARE_BYTES))
