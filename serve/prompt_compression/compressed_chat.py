"""One chat with a compressed prompt, and its savings in tokens and money once its usage is known."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from logging import getLogger
from typing import Any, TypeVar

from billing.price import Cost, ModelPrice, cost
from billing.usage import PromptCompression, Saving
from models.engine import TokenUsage
from serve.metrics.prompt_compression import ObservedPrompt
from serve.money.held_request import HeldRequest, MoreThanHeld
from serve.originals.originals import Kept, Original
from serve.prompt_compression.blocks import Block
from serve.prompt_compression.outcome import CompressedPrompt
from serve.prompt_compression.settings import PromptCompressionSettings

# Counted from the end of the reply, when the work beside it has usually ended.
ASIDE_S = 5.0
logger = getLogger("pith.prompt_compression")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class PreparedPrompt:
    """A prompt for which compression was asked. Messages before `newest` were sent in an earlier turn already.

    `conversation` is None unless this conversation takes part in a comparison; `holdout`: on the side left whole.
    """

    settings: PromptCompressionSettings
    blocks: tuple[Block, ...]
    newest: int
    conversation: str | None
    holdout: bool


@dataclass(slots=True)
class CompressedChat:
    """`part` holds what the compression costs, where it costs anything; the prices are the chat's model's and the
    compression's."""

    prompt: PreparedPrompt
    result: CompressedPrompt
    chat_price: ModelPrice
    price: ModelPrice
    observed: ObservedPrompt
    part: HeldRequest | None = None
    # Counts the prompt as it was.
    count: Callable[[], Coroutine[Any, Any, int]] | None = None
    # Keeps originals.
    keep: Callable[[Sequence[Original]], Coroutine[Any, Any, Kept]] | None = None
    # As settled. `original_tokens` are those of the uncompressed prompt, as the engine counts them; None while unknown.
    original_tokens: int | None = field(default=None, init=False)
    saved_nano_usd: int = field(default=0, init=False)
    _counting: asyncio.Task[int] | None = field(default=None, init=False)
    _keeping: asyncio.Task[Kept] | None = field(default=None, init=False)

    @property
    def charged_usage(self) -> TokenUsage:
        """The tokens of what was compressed for this request, in the receipts' tokenizer."""
        receipts = [outcome.compression.receipt for outcome in self.result.charged if outcome.compression]
        return TokenUsage(
            sum(receipt.original_tokens for receipt in receipts),
            sum(receipt.output_tokens for receipt in receipts),
        )

    @property
    def cost_nano_usd(self) -> int:
        """Of the compression itself."""
        usage = self.charged_usage
        return cost(
            self.price,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            minimum=bool(usage.prompt_tokens),
        ).nano_usd

    def charge(self, part: HeldRequest) -> None:
        """Charge this request for its compression. If it exceeds the hold, the prompt is sent whole and nothing is
        charged."""
        try:
            part.use(self.charged_usage)
        except MoreThanHeld:
            logger.critical("%s: %r exceeds the hold %r", self.price.model_id, self.charged_usage, part.most)
            self.result = self.result.without_charged()
        else:
            self.part = part

    def begin_aside(self) -> None:
        """Count the uncompressed prompt and keep the originals while the engine generates: the reply needs both, the
        engine neither. Unchanged prompts need neither."""
        if self._counting is None and self.result.compressed:
            if self.count is not None:
                self._counting = asyncio.create_task(self.count())
            if self.keep is not None and self.prompt.settings.retain_s > 0:
                self._keeping = asyncio.create_task(self.keep(self._originals()))

    async def finish_aside(self, *, within_s: float = ASIDE_S) -> None:
        """Wait for that work, briefly. If the count fails, no saving is claimed."""
        begun = [task for task in (self._counting, self._keeping) if task is not None]
        if not begun:
            return
        await asyncio.wait(begun, timeout=within_s)
        for task in begun:
            if not task.done():
                logger.warning("%s: not done within %g s after the reply", task.get_coro(), within_s)
                # Done a moment later, the reply would tell of it, and the books would not.
                task.cancel()
            elif not task.cancelled() and (error := task.exception()) is not None:
                logger.warning("the count of a prompt as it was, or its originals, failed: %r", error)

    def close(self) -> None:
        """Cancel the work that is still under way."""
        for task in (self._counting, self._keeping):
            if task is not None:
                task.cancel()

    def retained_until(self, id_: str) -> int | None:
        """The Unix time until which a block's original can be fetched; None where it is not kept."""
        kept = _result_of(self._keeping)
        return None if kept is None else kept.until.get(id_)

    def _originals(self) -> list[Original]:
        return [Original(each.id, each.block.text) for each in self.result.compressed]

    def _original_tokens(self, usage: TokenUsage) -> int | None:
        if not self.result.compressed:
            return usage.prompt_tokens
        return _result_of(self._counting)

    def saving_of(self, usage: TokenUsage, charged: Cost, minimum: bool) -> Saving:
        """How much more the uncompressed prompt would have cost, as the ledger and the reply have it."""
        self.original_tokens = self._original_tokens(usage)
        original = self.original_tokens or usage.prompt_tokens
        cached = self._cached_of(original, usage)
        whole = cost(
            self.chat_price,
            prompt_tokens=original,
            completion_tokens=usage.completion_tokens,
            cached_tokens=cached,
            minimum=minimum,
        )
        self.saved_nano_usd = whole.nano_usd - charged.nano_usd
        return Saving(
            status=self.recorded_status,
            original_tokens=original,
            original_cached_tokens=cached,
            saved_nano_usd=self.saved_nano_usd,
            conversation=self.prompt.conversation,
        )

    def _cached_of(self, original: int, usage: TokenUsage) -> int:
        """How many tokens of the uncompressed prompt would have been cached, at most: those of earlier turns if the
        engine found any, and of the rest as many as it found of what was sent."""
        cached = min(usage.cached_tokens, usage.prompt_tokens)
        if not cached:
            return 0
        uncached = usage.prompt_tokens - cached
        new = [each for each in self.result.compressed if each.block.message >= self.prompt.newest]
        saved = sum(each.tokens_saved for each in self.result.compressed)
        of_new = sum(each.tokens_saved for each in new) / saved if saved else 0.0
        sent_of_new = sum(each.tokens_sent for each in new)
        # If the same request was sent before, the engine also found its new part.
        unseen = min(1.0, uncached / sent_of_new) if sent_of_new else 0.0
        return max(cached, original - uncached - round((original - usage.prompt_tokens) * of_new * unseen))

    @property
    def recorded_status(self) -> PromptCompression:
        return "holdout" if self.result.holdout else self.result.status


def _result_of(task: asyncio.Task[Value] | None) -> Value | None:
    """None where it failed, or has not ended."""
    if task is None or not task.done() or task.cancelled() or task.exception() is not None:
        return None
    return task.result()
