"""A block's compression that overlapping requests share: made once, and charged once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field

from compression.pipeline.request import Receipt
from serve.prompt_compression.worth import BlockTokens


@dataclass(frozen=True, slots=True)
class Compression:
    """What a block became: an output for each of its texts."""

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
        """Whether a settlement that pays for it is under way."""
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
