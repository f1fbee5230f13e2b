"""The part of a chat's messages that was sent: asked of `/v1/compress`, with the same messages and size and no query.

A chat's reply has receipts and not what was sent. Messages without a query are compressed by the rules of chat, and
come back. The receipts must agree in tokens with the chat's; how often they do is part of what is measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from benchmarks.load.exchange import EXCERPT, Failed

PATH = "/v1/compress"
Blocks = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Sent:
    messages: Sequence[Mapping[str, Any]]
    blocks: Blocks


@dataclass(frozen=True, slots=True)
class Compressor:
    """`size` is a target_ratio or a keep."""

    session: aiohttp.ClientSession
    size: Mapping[str, float]

    async def sent(self, messages: Sequence[Mapping[str, Any]]) -> Sent:
        """Raises `Failed`."""
        body = {"messages": messages, "compression": {"scope": "marked", **self.size}}
        async with self.session.post(PATH, json=body) as response:
            if response.status != 200:
                raise Failed(f"POST {PATH}: {response.status} {(await response.text())[:EXCERPT]}")
            reply = await response.json()
        return Sent(reply["messages"], reply["blocks"])
