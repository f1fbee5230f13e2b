"""Tokens of a prompt's blocks, whole and compressed, as the chat's engine counts them.

Each block is counted by itself, in a message as its own and not where it stands: so the count follows from the block
alone, and all counts of a prompt together take no longer than that of the prompt.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from logging import getLogger
from typing import Any

from billing.errors import BillingError
from models.errors import EngineError, EngineRejected
from serve.compressors.compressor import AT_ONCE
from serve.prompt_compression.blocks import Block, Message
from serve.prompt_compression.outcome import BlockOutcome
from serve.prompt_compression.worth import BlockTokens

logger = getLogger("pith.prompt_compression")
# In place of a text that is not counted.
NO_TEXT = "."
ASKED: Message = {"role": "user", "content": NO_TEXT}


@dataclass(frozen=True, slots=True)
class EngineTokens:
    """Counts the blocks of one chat's `messages`. `count` has the engine count a prompt."""

    model_id: str
    messages: Sequence[Message]
    count: Callable[[Sequence[Message]], Awaitable[int]]

    def known(self, outcome: BlockOutcome) -> BlockTokens | None:
        """If it was counted before."""
        return outcome.shared.tokens.get(self._key(outcome))

    async def of(self, outcomes: Sequence[BlockOutcome]) -> list[BlockTokens | None]:
        """Of those that were compressed; None for others, and where the engine cannot count."""
        places = asyncio.Semaphore(AT_ONCE)

        async def one(outcome: BlockOutcome) -> BlockTokens | None:
            if not outcome.is_compressed:
                return None
            found = self.known(outcome)
            if found is None:
                async with places:
                    found = await self._counted(outcome)
            return found

        return list(await asyncio.gather(*map(one, outcomes)))

    async def _counted(self, outcome: BlockOutcome) -> BlockTokens | None:
        block = outcome.block
        texts = (block.texts, outcome.sent_texts, (NO_TEXT,) * len(block.texts))
        try:
            whole, sent, frame = await self._of_each([self._framed(block, each) for each in texts])
        except (EngineError, BillingError) as error:
            logger.warning("%s: a block could not be counted: %s", self.model_id, error)
            return None
        found = outcome.shared.tokens[self._key(outcome)] = BlockTokens(whole - frame, sent - frame)
        return found

    async def _of_each(self, prompts: Sequence[Sequence[Message]]) -> list[int]:
        try:
            return await asyncio.gather(*map(self.count, prompts))
        except EngineRejected:
            # A template may want more of a conversation than this.
            return await asyncio.gather(
                *(self.count([{"role": "user", "content": prompt[-1]["content"]}]) for prompt in prompts)
            )

    def _framed(self, block: Block, texts: Sequence[str]) -> list[Message]:
        """The block's message with these texts, and what has to stand before such a message."""
        message = self.messages[block.message]
        framed = {
            **{name: value for name, value in message.items() if name != "tool_calls"},
            "content": _content(message["content"], block, texts),
        }
        if message["role"] == "user":
            return [framed]
        return [ASKED, *self._call_of(block.message), framed]

    def _call_of(self, at: int) -> list[Message]:
        wanted = self.messages[at].get("tool_call_id")
        for message in reversed(self.messages[:at] if wanted else ()):
            for call in message.get("tool_calls") or ():
                if call.get("id") == wanted:
                    return [{"role": "assistant", "content": None, "tool_calls": [_without_arguments(call)]}]
        return []

    def _key(self, outcome: BlockOutcome) -> tuple[object, ...]:
        block = outcome.block
        return self.model_id, self.messages[block.message]["role"], bool(block.parts), bool(outcome.footer)


def _content(content: Any, block: Block, texts: Sequence[str]) -> Any:
    if not block.parts:
        return texts[0]
    return [{**content[part], "text": text} for part, text in zip(block.parts, texts, strict=True)]


def _without_arguments(call: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**call, "function": {**call["function"], "arguments": "{}"}}
