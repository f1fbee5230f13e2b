"""Compresses the blocks of one prompt until a deadline. What was compressed before costs nothing.

The chat's engine counts what that saved, block by block: each in a message as its own and not where it stands, so the
count follows from the block alone, and all counts of a prompt together take no longer than that of the prompt.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from billing.caller import Caller
from billing.errors import BillingError
from compression.pipeline.compression_model import CompressionRequest, CompressionResult, JobTerms
from compression.pipeline.errors import (
    CompressionError,
    CompressionTimedOut,
    CompressorFailed,
    CompressorOverloaded,
    CompressorUnavailable,
    InputTooLarge,
)
from models.errors import EngineError, EngineRejected
from serve.compressors.compressor import AT_ONCE, ServedCompressor
from serve.metrics.charged_requests import Reason
from serve.prompt_compression.blocks import Block, Message, cut, looks_like_json
from serve.prompt_compression.options import PromptCompressionSettings
from serve.prompt_compression.outcome import BlockOutcome, Compression, ResultCache, content_key
from serve.prompt_compression.worth import BlockTokens
from serve.tracing.request_record import step

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
        """The tokens of those that were compressed; None for others, and where the engine cannot count."""
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


logger = logging.getLogger("pith.prompt_compression")
ID_PREFIX = "cmp_"
# Failures of a compression model that no request causes.
FAULTS = (CompressorOverloaded, CompressorUnavailable, CompressorFailed, CompressionTimedOut)
# The bound for a tokenizer without a proven one: far more than any makes.
MOST_TOKENS_PER_BYTE = 64


@dataclass(frozen=True, slots=True)
class BlockCompressor:
    """`deadline_s` is for all blocks of a prompt together; those not done by then are sent whole. `key` is the server's
    secret: without it an id does not reveal its text."""

    cache: ResultCache
    deadline_s: float
    key: bytes

    def known(
        self,
        blocks: Sequence[Block],
        settings: PromptCompressionSettings,
        caller: Caller,
        served: ServedCompressor,
    ) -> list[BlockOutcome]:
        """Each block's outcome as far as it needs no work: too short, too large, or compressed before; else pending."""
        return [self._known(block, settings, caller, served) for block in blocks]

    def _known(
        self, block: Block, settings: PromptCompressionSettings, caller: Caller, served: ServedCompressor
    ) -> BlockOutcome:
        outcome = BlockOutcome(self._id_of(block, settings, caller), block)
        reason = _reason_to_leave(block.text, settings, served)
        if reason is not None:
            return replace(outcome, reason=reason)
        outcome = replace(outcome, shared=self.cache.of(outcome.id))
        found = outcome.shared.compression
        if found is None:
            return outcome
        if outcome.id not in self.cache:
            # Who had it made has left, or others had more room then.
            self.cache.keep(outcome.id, outcome.shared, owner=caller.workspace_id)
        # What nobody has paid for is charged to the first request that uses it and is settled.
        return _finished(outcome, found, settings, is_cached=outcome.shared.is_paid)

    def _id_of(self, block: Block, settings: PromptCompressionSettings, caller: Caller) -> str:
        how = f"{block.is_tool_result}\0{chr(0).join(block.known)}"
        whose = (caller.workspace_id, caller.project_id)
        key = content_key(self.key, *whose, settings.as_key(), how, block.query, *block.texts)
        return f"{ID_PREFIX}{key}"

    async def compress(
        self,
        outcomes: Sequence[BlockOutcome],
        settings: PromptCompressionSettings,
        caller: Caller,
        served: ServedCompressor,
        *,
        is_free: bool,
    ) -> list[BlockOutcome]:
        """The same outcomes in the same order, the pending ones compressed or failed. Unless `is_free`, somebody is to
        be charged for them.

        Raises `CompressionError` for settings of the request that the model does not take.
        """
        pending = [outcome for outcome in outcomes if outcome.is_pending]
        if not pending:
            return list(outcomes)
        try:
            done = iter(await self._compress(pending, settings, caller, served, is_free))
        except CompressionError as error:
            if settings.is_asked:
                raise
            # The client cannot put its project's default right.
            logger.warning("project %s: its default cannot be used: %s", caller.project_id, error)
            done = iter([replace(outcome, reason="failed") for outcome in pending])
        return [next(done) if outcome.is_pending else outcome for outcome in outcomes]

    async def _compress(
        self,
        pending: Sequence[BlockOutcome],
        settings: PromptCompressionSettings,
        caller: Caller,
        served: ServedCompressor,
        is_free: bool,
    ) -> list[BlockOutcome]:
        places = asyncio.Semaphore(AT_ONCE)
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + self.deadline_s

        async def make(block: Block) -> Compression:
            terms = JobTerms(payer=caller.project_id, deadline_s=max(0.001, ends_at - loop.time()))
            with step("compress", "client"):
                result = await served.model.compress(_request(block, settings), terms)
            return _believed(block, result, settings, served)

        async def one(outcome: BlockOutcome) -> BlockOutcome | CompressionError:
            shared = outcome.shared
            try:
                async with asyncio.timeout_at(ends_at), places:
                    found = await shared.made(partial(make, outcome.block))
            except Exception as error:
                return _failed(outcome, error)
            self.cache.keep(outcome.id, shared, owner=caller.workspace_id)
            is_cached = shared.is_paid
            shared.is_paid = is_cached or is_free
            return _finished(outcome, found, settings, is_cached=is_cached)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(outcome)) for outcome in pending]
        done = []
        for result in [task.result() for task in tasks]:
            if isinstance(result, CompressionError):
                raise result
            done.append(result)
        return done


def _reason_to_leave(
    text: str, settings: PromptCompressionSettings, served: ServedCompressor
) -> Reason | None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return "not_text"
    # No tokenizer makes more tokens of a text than it has bytes, but for a few characters.
    if size < settings.min_tokens:
        return "below_min_tokens"
    if size > served.longest_input_bytes:
        return "too_large"
    if not served.keeps_json and looks_like_json(text):
        return "json_would_break"
    return None


def _finished(
    outcome: BlockOutcome, found: Compression, settings: PromptCompressionSettings, *, is_cached: bool
) -> BlockOutcome:
    if found.receipt.original_tokens < settings.min_tokens:
        return replace(outcome, reason="below_min_tokens")
    return replace(outcome, compression=found, is_cached=is_cached, footer=_footer(outcome, found, settings))


def _footer(outcome: BlockOutcome, found: Compression, settings: PromptCompressionSettings) -> str:
    """A last line with the block's id, if gaps are marked and can be opened again. JSON cannot have one."""
    is_marked = settings.mark_gaps and settings.retain_s > 0 and found.outputs != outcome.block.texts
    return "" if not is_marked or looks_like_json(found.outputs[-1]) else f"\n[… {outcome.id}]"


def _believed(
    block: Block, result: CompressionResult, settings: PromptCompressionSettings, served: ServedCompressor
) -> Compression:
    """The model's answer, checked. Raises `CompressorFailed` for an impossible one, which must not be charged."""
    receipt = result.receipt
    most = len(block.text.encode()) * (served.tokens_per_byte or MOST_TOKENS_PER_BYTE)
    if not (0 <= receipt.original_tokens <= most and 0 <= receipt.output_tokens <= most):
        raise CompressorFailed(f"a receipt of {receipt.original_tokens} and {receipt.output_tokens} tokens")
    outputs = _outputs(block, result, settings)
    if not all(isinstance(output, str) for output in outputs):
        raise CompressorFailed("an output that is no text")
    return Compression(outputs, receipt)


def _outputs(block: Block, result: CompressionResult, settings: PromptCompressionSettings) -> tuple[str, ...]:
    if len(block.texts) == 1:
        return (result.output,)
    return cut(block.texts, result.kept, mark_gaps=settings.mark_gaps)


def _request(block: Block, settings: PromptCompressionSettings) -> CompressionRequest:
    return CompressionRequest(
        query=block.query,
        input=block.text,
        target_ratio=settings.target_ratio,
        keep=settings.keep,
        mark_gaps=settings.mark_gaps,
        is_tool_result=block.is_tool_result,
        known=block.known,
    )


def _failed(outcome: BlockOutcome, error: Exception) -> BlockOutcome | CompressionError:
    """The block is sent whole. For settings that the model does not take, the error: the caller can correct them."""
    if isinstance(error, CompressionError) and error.field.startswith("compression."):
        return error
    return sent_whole(outcome, error)


def sent_whole(outcome: BlockOutcome, error: Exception) -> BlockOutcome:
    """A block that the model could not compress."""
    return replace(outcome, reason=_reason(error))


def _reason(error: Exception) -> Reason:
    if isinstance(error, InputTooLarge):
        return "too_large"
    if isinstance(error, CompressionError):
        return "not_text"
    if isinstance(error, (CompressionTimedOut, TimeoutError)):
        return "timed_out"
    # Whatever it is, the chat goes on: an unexpected failure is for the log.
    logger.warning("a block could not be compressed: %s", error, exc_info=not isinstance(error, FAULTS))
    return "failed"
