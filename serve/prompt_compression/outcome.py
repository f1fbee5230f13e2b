"""The outcome of each block of a prompt, and of the prompt."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from serve.metrics.charged_requests import BlockEnd, Reason
from serve.prompt_compression.blocks import Block
from serve.prompt_compression.shared_result import Compression, SharedResult

Status = Literal["applied", "skipped", "failed"]
FAILURES: frozenset[Reason] = frozenset({"quota_exceeded", "failed", "timed_out"})


@dataclass(frozen=True, slots=True)
class BlockOutcome:
    """A block with what it was compressed to, or the `reason` why it is sent whole; with neither it is pending.
    `is_cached`: another request pays for it, or has paid.

    The `id` is the same in every turn, and another one in every workspace and project.
    """

    id: str
    block: Block
    compression: Compression | None = None
    reason: Reason | None = None
    is_cached: bool = False
    # A last line with the id of the block's original, for the model.
    footer: str = ""
    # With all requests that have this block now, or had it before.
    shared: SharedResult = field(default_factory=SharedResult)

    @property
    def is_compressed(self) -> bool:
        return self.compression is not None and self.reason is None

    @property
    def end(self) -> BlockEnd:
        """The outcome as a metric's label, once it is not pending."""
        return self.reason or ("cached" if self.is_cached else "compressed")

    @property
    def is_pending(self) -> bool:
        return self.compression is None and self.reason is None

    @property
    def is_due(self) -> bool:
        """Whether its work is to be charged: it is to be done, or was done for a request that did not pay."""
        return self.is_pending or (self.is_compressed and not self.is_cached)

    @property
    def sent_texts(self) -> tuple[str, ...]:
        """What the engine gets in place of the block's texts."""
        if self.compression is None or not self.is_compressed:
            return self.block.texts
        *others, last = self.compression.outputs
        return (*others, last + self.footer)

    @property
    def footer_tokens(self) -> int:
        """An upper bound: no tokenizer makes more tokens than bytes."""
        return len(self.footer.encode())

    @property
    def tokens_sent(self) -> int:
        """In the receipt's tokenizer."""
        return self.compression.receipt.output_tokens if self.compression and self.is_compressed else 0

    @property
    def tokens_saved(self) -> int:
        """In the receipt's tokenizer."""
        return self.compression.receipt.tokens_saved if self.compression and self.is_compressed else 0


@dataclass(frozen=True, slots=True)
class CompressedPrompt:
    """The outcomes in the conversation's order. `holdout`: all of it is sent whole, to measure against."""

    outcomes: tuple[BlockOutcome, ...]
    holdout: bool = False

    @property
    def status(self) -> Status:
        """`failed` where a block could not be compressed, though others may have been."""
        if any(outcome.reason in FAILURES for outcome in self.outcomes):
            return "failed"
        return "applied" if self.compressed else "skipped"

    @property
    def compressed(self) -> list[BlockOutcome]:
        return [outcome for outcome in self.outcomes if outcome.is_compressed]

    @property
    def charged(self) -> list[BlockOutcome]:
        """Those for which no other request has paid."""
        return [outcome for outcome in self.compressed if not outcome.is_cached]

    def each_charged_once(self) -> CompressedPrompt:
        """A block that stands in the prompt several times is compressed once."""
        outcomes = list(self.outcomes)
        seen: set[str] = set()
        for at, each in enumerate(outcomes):
            if each.is_compressed and each.id in seen:
                outcomes[at] = replace(each, is_cached=True)
            seen.add(each.id)
        return replace(self, outcomes=tuple(outcomes))

    def without_charged(self, reason: Reason) -> CompressedPrompt:
        """The same with those sent whole."""
        return self._changed({each.id for each in self.charged}, reason=reason)

    def paid_by_others(self, ids: Container[str]) -> CompressedPrompt:
        """The same with these charged to other requests."""
        return self._changed(ids, is_cached=True)

    def _changed(self, ids: Container[str], **fields: Any) -> CompressedPrompt:
        outcomes = (
            replace(each, **fields) if each.is_compressed and each.id in ids else each
            for each in self.outcomes
        )
        return replace(self, outcomes=tuple(outcomes))

    def whole(self, reason: Reason) -> CompressedPrompt:
        """The same with nothing compressed."""
        return self._changed({each.id for each in self.compressed}, reason=reason)

    def rewritten(self, messages: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
        """The messages with what their blocks became; the given ones stay as they are."""
        result = list(messages)
        for outcome in self.compressed:
            at = outcome.block.message
            result[at] = _with_texts(result[at], outcome)
        return tuple(result)


def _with_texts(message: Mapping[str, Any], outcome: BlockOutcome) -> Mapping[str, Any]:
    if not outcome.block.parts:
        return {**message, "content": outcome.sent_texts[0]}
    content = list(message["content"])
    for part, text in zip(outcome.block.parts, outcome.sent_texts, strict=True):
        content[part] = {**content[part], "text": text}
    return {**message, "content": content}
