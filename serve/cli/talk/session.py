"""A chat so far: its messages, the files that the next one takes along, and what it has cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any


@dataclass(slots=True)
class Reply:
    """What came of one reply, whole or stopped. Without `usage` it ended before the server said what it cost."""

    text: str = ""
    finish_reason: str | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)
    service: Mapping[str, Any] = field(default_factory=dict)

    def take(self, event: Mapping[str, Any]) -> str:
        """Add one event of the stream; returns the text that it brought."""
        self.usage = event.get("usage") or self.usage
        self.service = event.get("service") or self.service
        brought = ""
        for choice in event.get("choices") or ():
            brought += (choice.get("delta") or {}).get("content") or ""
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
        self.text += brought
        return brought

    @property
    def cost_usd(self) -> Decimal | None:
        """With what compressing its prompt cost; None where nothing is billed."""
        cost = (self.service.get("billing") or {}).get("request_cost_usd")
        return None if cost is None else Decimal(str(cost)) + _decimal(self.compression.get("cost_usd"))

    @property
    def compression(self) -> Mapping[str, Any]:
        return self.service.get("compression") or {}


@dataclass(slots=True)
class Conversation:
    """`model` None is the server's default. `system` None sends no system message."""

    model: str | None = None
    system: str | None = None
    max_tokens: int | None = None
    messages: list[dict[str, Any]] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    turns: int = 0
    tokens: int = 0
    cost_usd: Decimal = Decimal(0)
    saved_usd: Decimal = Decimal(0)

    def message(self, text: str) -> dict[str, Any]:
        """What the user says next: each file as a part that may be compressed, and the text, which says for what."""
        if not self.files:
            return {"role": "user", "content": text}
        parts = [{"type": "text", "text": file, "compress": True} for file in self.files]
        return {"role": "user", "content": [*parts, {"type": "text", "text": text}]}

    def body(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The request's body."""
        system = [] if self.system is None else [{"role": "system", "content": self.system}]
        given = {"model": self.model, "max_tokens": self.max_tokens}
        return {
            "messages": [*system, *self.messages, message],
            **{name: value for name, value in given.items() if value is not None},
        }

    def add(self, message: dict[str, Any], reply: Reply) -> None:
        """Keep a turn of which something came."""
        self.messages += [message, {"role": "assistant", "content": reply.text}]
        self.files = []
        self.turns += 1
        self.tokens += int(reply.usage.get("total_tokens", 0))
        self.cost_usd += reply.cost_usd or 0
        self.saved_usd += _decimal(reply.compression.get("net_usd"))

    def clear(self) -> None:
        """Forget what was said; what it cost stays."""
        self.messages, self.files = [], []

    def saved(self) -> list[dict[str, Any]]:
        """As `messages` of a request."""
        system = [] if self.system is None else [{"role": "system", "content": self.system}]
        return [*system, *self.messages]


def _decimal(usd: Any) -> Decimal:
    return Decimal(str(usd)) if usd is not None else Decimal(0)


def summary(reply: Reply, so_far: Conversation) -> list[str]:
    """Lines about a turn: what its compression saved, what it took, and the session."""
    lines = [_compressed(reply.compression)] if reply.compression else []
    took = "stopped before its cost was known"
    if reply.usage:
        cached = (reply.usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        took = f"{reply.usage.get('prompt_tokens', 0):,} tokens in" + (
            f" ({cached:,} cached)" if cached else ""
        )
        took += f", {reply.usage.get('completion_tokens', 0):,} out, {_usd(reply.cost_usd)}"
    if reply.finish_reason == "length":
        took += " (cut off by the limit of tokens)"
    turns = f"{so_far.turns} turn{'s' if so_far.turns != 1 else ''}"
    return [*lines, f"{took}; session: {turns}, {so_far.tokens:,} tokens, {_usd(so_far.cost_usd)}"]


def _compressed(found: Mapping[str, Any]) -> str:
    original, sent = found.get("original_tokens"), found.get("sent_tokens")
    if found.get("status") != "applied" or original is None or sent is None:
        reasons = sorted({str(block["reason"]) for block in found.get("blocks") or () if block.get("reason")})
        return f"compression {found.get('status')}" + (f": {', '.join(reasons)}" if reasons else "")
    share = f" ({1 - sent / original:.0%} less)" if original else ""
    return f"compressed: {original:,} tokens to {sent:,}{share}, saved {_usd(_decimal(found.get('net_usd')))} net"


def _usd(usd: Decimal | None) -> str:
    return "not billed" if usd is None else f"${usd.normalize():f}" if usd else "$0"
