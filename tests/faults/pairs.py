"""A chat and the compression of its prompt in the books: both or neither, each with the other's id, at its own cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.faults.client import Answer
from tests.faults.prices import PinnedPrice


def pair_troubles(answer: Answer, events: Sequence[Any], prices: Mapping[str, PinnedPrice]) -> list[str]:
    """What is wrong with the events of one chat, in words."""
    chats = [event for event in events if event.model_id == answer.ask.model]
    compressions = [event for event in events if event.model_id != answer.ask.model]
    if not events:
        return []
    if len(chats) != 1 or len(compressions) > 1:
        return [f"it has {len(chats)} events of a chat and {len(compressions)} of a compression"]
    (chat,) = chats
    compression = compressions[0] if compressions else None
    return [
        *_link_troubles(chat, compression),
        *_saving_troubles(chat, prices[chat.model_id]),
        *_told_troubles(answer, chat, compression),
    ]


def _link_troubles(chat: Any, compression: Any | None) -> list[str]:
    if compression is None:
        alone = (chat.paired_with, chat.compression_nano_usd)
        return [] if alone == (None, 0) else [f"it names a compression that is not there: {alone}"]
    found = (chat.paired_with, compression.paired_with, chat.compression_nano_usd, compression.outcome)
    due = (compression.event_id, chat.event_id, compression.cost_nano_usd, chat.outcome)
    return [] if found == due else [f"the two events say {found} of each other, and should say {due}"]


def _saving_troubles(chat: Any, price: PinnedPrice) -> list[str]:
    if chat.original_tokens is None:
        return []
    whole = price.nano_usd(
        chat.original_tokens,
        chat.completion_tokens,
        cached_tokens=chat.original_cached_tokens,
        minimum=chat.outcome != "failed",
    )
    saved = whole - chat.cost_nano_usd
    return (
        [] if chat.saved_nano_usd == saved else [f"{chat.saved_nano_usd} is said to be saved, and {saved} is"]
    )


def _told_troubles(answer: Answer, chat: Any, compression: Any | None) -> list[str]:
    """A whole reply says what the books say."""
    told = (answer.receipt or {}).get("service", {}).get("compression")
    if told is None:
        return []
    said = [told[name] for name in ("saved_usd", "cost_usd", "original_tokens", "status")]
    cost = compression.cost_nano_usd if compression else 0
    recorded = [chat.saved_nano_usd / 10**9, cost / 10**9, chat.original_tokens, chat.compression]
    return [] if said == recorded else [f"the client was told {said}, and the books say {recorded}"]
