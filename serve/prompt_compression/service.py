"""Compression inside chat: from a request's messages to those that the engine gets, and what that saved."""

import hashlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import orjson

from billing.accounts.keys import ModelNotAllowed
from billing.caller import Caller
from billing.errors import QuotaExceeded
from billing.preservation.size_control import SIZES, START, size_of
from billing.preservation.sizes import Bound, SizedFor
from compression.pipeline.errors import CompressorUnavailable, UnknownCompressionModel
from models.errors import InvalidField
from serve.compressors.compressor import ServedCompressor, token_terms
from serve.http.replies import Client
from serve.metrics.charged_requests import CompressMetrics, PromptCompressionMetrics, Reason
from serve.money.admission import Admitted
from serve.money.held_request import HeldRequest
from serve.money.prices import price_of
from serve.originals.originals import Originals
from serve.prompt_compression.blocks import Block, find_blocks, has_marks
from serve.prompt_compression.compressed_chat import CompressedChat, PreparedPrompt
from serve.prompt_compression.compressing import FAULTS, BlockCompressor, EngineTokens, sent_whole
from serve.prompt_compression.options import (
    Asked,
    PromptCompressionOptions,
    PromptCompressionSettings,
    default_of,
    settings_of,
)
from serve.prompt_compression.outcome import BlockOutcome, CompressedPrompt
from serve.prompt_compression.readings import Readings
from serve.prompt_compression.worth import BlockTokens, Worth

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
    """True if this conversation is in the held-out `share`. Its hash decides, so each turn gets the same answer."""
    drawn = int(conversation[: 2 * SHARE_BYTES], 16)
    return drawn < int(share * 2 ** (8 * SHARE_BYTES))


def drawn_by(conversation: str) -> float:
    """The number from 0 to below 1 that decides its size; another one than decides whether it is held out."""
    return (int(conversation[2 * SHARE_BYTES :], 16) >> 11) / 2**53


Messages = Sequence[Mapping[str, Any]]
# How many projects' settings are remembered.
MOST_DEFAULTS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptCompressor:
    """Compresses prompts with this server's compression models."""

    models: Mapping[str, ServedCompressor]
    blocks: BlockCompressor
    metrics: CompressMetrics
    prompt_metrics: PromptCompressionMetrics
    originals: Originals
    _of_defaults: dict[PromptCompressionOptions, PromptCompressionSettings] = field(
        default_factory=dict, init=False
    )
    _readings: Readings = field(default_factory=Readings, init=False)

    def prepare(self, caller: Caller, messages: Messages, asked: Asked) -> PreparedPrompt | None:
        """Find what to compress in these messages; None if compression is not asked for, or `asked` turns it off.

        Needs no I/O. Raises `InvalidField` and, where the request asks for it, `ModelNotAllowed`.
        """
        is_marked = has_marks(messages)
        if asked is False:
            return None
        if not self.models:
            if asked is not None:
                raise InvalidField(("compression",), "this server has no compression model")
            return None
        default = default_of(caller.compression)
        if asked is None and default is None and not is_marked:
            return None
        try:
            settings = self._settings(asked, default)
        except UnknownCompressionModel:
            # The project's default names it: the client cannot change that, and `pith project list` shows it.
            return None
        if not caller.powers.allows_model(settings.model_id):
            if asked is not None:
                raise ModelNotAllowed(settings.model_id)
            return None
        if asked is not None:
            self.originals.retention.check(asked.retain_s)
        values_of = partial(self._readings.values, caller.project_id)
        blocks = find_blocks(messages, settings.scope, values_of)
        conversation = (
            conversation_of(messages, caller, self.blocks.key) if _is_drawn(settings, blocks) else ""
        )
        compared = conversation if settings.holdout > 0 else ""
        holdout = bool(compared) and is_held_out(compared, settings.holdout)
        sized = None
        if conversation and (bound := settings.within) is not None:
            settings = settings.of_size(_size_of(conversation, caller))
            sized = None if holdout else _sized_for(caller, bound)
        return PreparedPrompt(settings, tuple(blocks), _newest(messages), compared or None, holdout, sized)

    def size_now(
        self, settings: PromptCompressionSettings, messages: Messages, caller: Caller
    ) -> PromptCompressionSettings:
        """With the size that a chat of these messages would have; the largest, where that is the whole prompt."""
        if settings.within is None:
            return settings
        size = _size_of(conversation_of(messages, caller, self.blocks.key), caller)
        return settings.of_size(size or SIZES[1])

    def _settings(
        self, asked: PromptCompressionOptions | None, default: PromptCompressionOptions | None
    ) -> PromptCompressionSettings:
        """Worked out once for each default, which most requests leave as it is."""
        if asked is not None or default is None:
            return settings_of(asked, default, self.models)
        if default not in self._of_defaults:
            if len(self._of_defaults) >= MOST_DEFAULTS:
                self._of_defaults.clear()
            self._of_defaults[default] = settings_of(None, default, self.models)
        return self._of_defaults[default]

    @asynccontextmanager
    async def compress(
        self, prompt: PreparedPrompt, admitted: Admitted, tokens: EngineTokens, client: Client
    ) -> AsyncIterator[CompressedChat]:
        """Compress the blocks, of which the chat's engine counts the `tokens`. Their price, if there is one, is held
        meanwhile.

        Raises what `Admitted.hold_part` raises, `CompressionError` for settings that the request asked for and
        the model does not take, and `CompressorUnavailable` where the request refuses to go out whole.
        """
        prices = (
            price_of(admitted.prices, tokens.model_id),
            price_of(admitted.prices, prompt.settings.model_id),
        )
        observed = self.prompt_metrics.begin(tokens.model_id)
        async with AsyncExitStack() as stack:
            if reason := prompt.left_whole:
                compressed = CompressedChat(prompt, _left_whole(prompt, reason), *prices, observed)
            else:
                part, result = await self._result(stack, prompt, Worth(*prices), admitted, tokens, client)
                keep = partial(self.originals.keep, admitted.caller, retain_s=prompt.settings.retain_s)
                compressed = CompressedChat(prompt, result, *prices, observed, keep=keep)
                if part is not None and result.charged:
                    compressed.charge(part)
                if compressed.part is None:
                    # Nothing will be charged, and the chat may need the rest of the quota.
                    await stack.aclose()
            observed.compressed()
            try:
                refuse_failure(prompt.settings, compressed.result)
                yield compressed
            finally:
                for outcome in compressed.result.outcomes:
                    observed.block(outcome.end)

    async def _held(
        self,
        stack: AsyncExitStack,
        prompt: PreparedPrompt,
        outcomes: Sequence[BlockOutcome],
        due: Sequence[BlockOutcome],
        admitted: Admitted,
        client: Client,
    ) -> tuple[HeldRequest | None, list[BlockOutcome]]:
        """Hold what the due blocks can cost. They go out whole where the model was to count them for that and failed,
        and where the quota has no room for them: it may have for the chat.

        They count against the project's limits with the chat, once.
        """
        settings, dues = prompt.settings, {each.id for each in due}
        terms = token_terms(
            settings.model_id,
            self.models[settings.model_id],
            [each.block.text for each in due],
            payer=admitted.caller.project_id,
            counts_against_limits=False,
            deadline_s=self.blocks.deadline_s,
        )
        paid = self.metrics.begin(settings.model_id)
        try:
            part = await stack.enter_async_context(admitted.hold_part(terms, paid, client=client))
        except QuotaExceeded:
            if settings.refuses_on_failure:
                raise
            return None, [
                replace(each, reason="quota_exceeded") if each.id in dues else each for each in outcomes
            ]
        except FAULTS as failure:
            return None, [sent_whole(each, failure) if each.id in dues else each for each in outcomes]
        return part, list(outcomes)

    async def _result(
        self,
        stack: AsyncExitStack,
        prompt: PreparedPrompt,
        worth: Worth,
        admitted: Admitted,
        tokens: EngineTokens,
        client: Client,
    ) -> tuple[HeldRequest | None, CompressedPrompt]:
        """The compressed prompt, and the hold for what is to be charged of it."""
        settings, part = prompt.settings, None
        if not prompt.blocks:
            return None, CompressedPrompt(())
        served = self.models[settings.model_id]
        outcomes = self.blocks.known(prompt.blocks, settings, admitted.caller, served)
        due = [each for each in outcomes if each.is_due and _may_pay(each, worth, tokens)]
        if due and not worth.compression.is_free:
            part, outcomes = await self._held(stack, prompt, outcomes, due, admitted, client)
        is_free = worth.compression.is_free
        found = await self.blocks.compress(outcomes, settings, admitted.caller, served, is_free=is_free)
        counted = await tokens.of(found)
        judged = (_if_it_pays(each, worth, count) for each, count in zip(found, counted, strict=True))
        return part, CompressedPrompt(tuple(judged)).each_charged_once()


def _may_pay(outcome: BlockOutcome, worth: Worth, tokens: EngineTokens) -> bool:
    known = tokens.known(outcome)
    return known is None or outcome.compression is None or worth.may_pay(known, outcome.compression.receipt)


def refuse_failure(settings: PromptCompressionSettings, result: CompressedPrompt) -> None:
    """Raises `CompressorUnavailable` where a block failed and the request will not go out whole."""
    if settings.refuses_on_failure and result.status == "failed":
        raise CompressorUnavailable(f"{settings.model_id}: a part of the prompt could not be compressed")


def _is_drawn(settings: PromptCompressionSettings, blocks: Sequence[Block]) -> bool:
    """Whether the conversation decides something."""
    return bool(blocks) and (settings.holdout > 0 or settings.within is not None)


def _size_of(conversation: str, caller: Caller) -> float | None:
    return size_of(START if caller.size_step is None else caller.size_step, drawn_by(conversation))


def _sized_for(caller: Caller, bound: Bound) -> SizedFor:
    return SizedFor(caller.workspace_id, caller.project_id, caller.compression or "", bound)


def _left_whole(prompt: PreparedPrompt, reason: Reason) -> CompressedPrompt:
    outcomes = tuple(BlockOutcome("", block, reason=reason) for block in prompt.blocks)
    return CompressedPrompt(outcomes, holdout=prompt.holdout)


def _if_it_pays(outcome: BlockOutcome, worth: Worth, tokens: BlockTokens | None) -> BlockOutcome:
    if outcome.compression is None or not outcome.is_compressed:
        return outcome
    if tokens is None:
        return replace(outcome, reason="failed")
    if worth.pays(tokens, outcome.compression.receipt):
        return outcome
    reason: Reason = "not_worth" if tokens.saved > 0 else "nothing_saved"
    return replace(outcome, reason=reason)


def _newest(messages: Messages) -> int:
    """Where the part begins that follows the last reply."""
    replies = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
    return replies[-1] + 1 if replies else 0
