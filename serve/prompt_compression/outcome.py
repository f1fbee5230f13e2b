"""The outcomes of a prompt's blocks, and the results that overlapping requests share, with their cache."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from weakref import WeakValueDictionary

from compression.pipeline.compression_model import Receipt
from models.engine import TokenUsage
from serve.metrics.charged_requests import BlockEnd, Reason
from serve.money.held_request import ChargedPrompt
from serve.originals.originals import Original
from serve.prompt_compression.blocks import Block
from serve.prompt_compression.worth import BlockTokens


@dataclass(frozen=True, slots=True)
class Compression:
    """A block's compression: an output for each of its texts."""

    outputs: tuple[str, ...]
    receipt: Receipt


@dataclass(slots=True, eq=False, weakref_slot=True)
class SharedResult:
    """It is unpaid until a request that used it was settled: the first of them claims it, and whoever is settled
    meanwhile gets it for nothing. If that settlement fails it is unpaid again. Safe in one event loop.
    """

    compression: Compression | None = field(default=None, init=False)
    is_paid: bool = field(default=False, init=False)
    # What it saves of a prompt, by what counts that.
    tokens: dict[Hashable, BlockTokens] = field(default_factory=dict, init=False)
    _claimed: asyncio.Event | None = field(default=None, init=False)
    _making: asyncio.Task[Compression] | None = field(default=None, init=False)
    _waiting: int = field(default=0, init=False)

    async def made(self, make: Callable[[], Awaitable[Compression]]) -> Compression:
        """The compression, made at the first call. It goes on while anybody waits for it. Raises what `make` raises."""
        if self.compression is not None:
            return self.compression
        if self._making is None:
            self._making = asyncio.create_task(self._make(make))
        making = self._making
        self._waiting += 1
        try:
            return await asyncio.shield(making)
        finally:
            self._waiting -= 1
            if not self._waiting and not making.done():
                # Who comes next begins anew.
                self._making = None
                making.cancel()
                await asyncio.wait([making])

    async def _make(self, make: Callable[[], Awaitable[Compression]]) -> Compression:
        try:
            self.compression = await make()
            return self.compression
        finally:
            if self._making is asyncio.current_task():
                self._making = None

    @property
    def is_claimed(self) -> bool:
        """True while a settlement that pays for it is under way."""
        return self._claimed is not None

    def claim(self) -> bool:
        """Begin to pay for it; false if somebody has paid, or is about to."""
        if self.is_paid or self._claimed is not None:
            return False
        self._claimed = asyncio.Event()
        return True

    def end_claim(self, *, is_paid: bool) -> None:
        """The settlement of who claimed it has ended."""
        assert self._claimed is not None
        self.is_paid = is_paid
        self._claimed.set()
        self._claimed = None

    async def when_unclaimed(self) -> None:
        """Wait while somebody else is about to pay for it."""
        while self._claimed is not None:
            await self._claimed.wait()


# The size of an entry beyond its text: key, receipt with flags, containers.
ENTRY_BYTES = 2048
DIGEST_BYTES = 16


def content_key(secret: bytes, *parts: str) -> str:
    """A digest of texts under a secret, each with its length, so that no two sequences share one."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES, key=secret)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()


class ResultCache:
    """The most recently used results, by key, within `most_bytes` of memory, and those that a request uses now; safe
    in one event loop.

    A key must name the workspace: whether a text was compressed before must not show elsewhere. Room is made by who has
    most in it: what one workspace puts in drops its own, and never those of workspaces with less.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._sizes: Counter[str] = Counter()
        # By who has them, and by key: the result and its bytes.
        self._entries: dict[str, OrderedDict[str, tuple[SharedResult, int]]] = {}
        self._owners: dict[str, str] = {}
        # Also what is being made, or was dropped while requests use it: they share it, and its charge.
        self._known: WeakValueDictionary[str, SharedResult] = WeakValueDictionary()

    def __contains__(self, key: str) -> bool:
        """Whether it is kept without a request that uses it."""
        return key in self._owners

    def of(self, key: str) -> SharedResult:
        """The key's result, which may be yet to make."""
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = SharedResult()
        elif key in self._owners:
            self._entries[self._owners[key]].move_to_end(key)
        return found

    def keep(self, key: str, result: SharedResult, *, owner: str) -> None:
        """Keep what was made, for a workspace. A result larger than the whole cache is not kept."""
        self._drop(key)
        size = _size(result)
        if size > self._most:
            return
        self._entries.setdefault(owner, OrderedDict())[key] = result, size
        self._owners[key] = owner
        self._sizes[owner] += size
        while self.size_bytes > self._most:
            largest = max(self._sizes, key=lambda one: self._sizes[one])
            self._drop(next(iter(self._entries[largest])))

    def clear(self) -> None:
        self._entries.clear()
        self._owners.clear()
        self._sizes.clear()
        self._known.clear()

    def _drop(self, key: str) -> None:
        owner = self._owners.pop(key, None)
        if owner is None:
            return
        self._sizes[owner] -= self._entries[owner].pop(key)[1]
        if not self._entries[owner]:
            del self._entries[owner], self._sizes[owner]

    @property
    def size_bytes(self) -> int:
        return self._sizes.total()


def _size(result: SharedResult) -> int:
    # At most four bytes a character in memory.
    outputs = () if result.compression is None else result.compression.outputs
    return ENTRY_BYTES + sum(4 * len(output) for output in outputs)


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
    def is_charged(self) -> bool:
        """True if it is sent compressed and no other request has paid."""
        return self.is_compressed and not self.is_cached

    @property
    def is_due(self) -> bool:
        """True if its work is to be charged: it is to be done, or was done for a request that did not pay."""
        return self.is_pending or self.is_charged

    @property
    def work(self) -> Compression | None:
        """What was made of it, also where it is sent whole all the same."""
        return self.compression or self.shared.compression

    @property
    def sent_texts(self) -> tuple[str, ...]:
        """The texts that the engine gets in place of the block's."""
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
        return [outcome for outcome in self.outcomes if outcome.is_charged]

    @property
    def originals(self) -> list[Original]:
        return [Original(each.id, each.block.text) for each in self.compressed]

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


# What a request is charged for: all work that is done for it, whatever that saves, or only what is sent compressed.
Charge = Literal["work", "sent"]


class Claims(ChargedPrompt):
    """The blocks that a request pays for: those of its `charge` that no other has paid for, or is about to."""

    def __init__(self, charge: Charge) -> None:
        self._charge = charge
        self.outcomes: list[BlockOutcome] = []

    def take(self, outcomes: Iterable[BlockOutcome]) -> None:
        wanted = (each for each in outcomes if (each.work if self._charge == "work" else each.is_charged))
        self.outcomes = [each for each in wanted if each.shared.claim()]

    def end_settlement(self, *, is_paid: bool) -> None:
        for each in self.outcomes:
            each.shared.end_claim(is_paid=is_paid)


def receipts_of(outcomes: Iterable[BlockOutcome]) -> list[Receipt]:
    return [each.work.receipt for each in outcomes if each.work]


def tokens_of(outcomes: Iterable[BlockOutcome]) -> TokenUsage:
    """In the receipts' tokenizer."""
    receipts = receipts_of(outcomes)
    return TokenUsage(
        sum(receipt.original_tokens for receipt in receipts),
        sum(receipt.output_tokens for receipt in receipts),
    )


def _with_texts(message: Mapping[str, Any], outcome: BlockOutcome) -> Mapping[str, Any]:
    if not outcome.block.parts:
        return {**message, "content": outcome.sent_texts[0]}
    content = list(message["content"])
    for part, text in zip(outcome.block.parts, outcome.sent_texts, strict=True):
        content[part] = {**content[part], "text": text}
    return {**message, "content": content}
