"""What a request can come to at most, before and after its prompt was counted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class MostTokens:
    """No outcome of a request has more tokens of either kind; `completion` is over all of its choices."""

    prompt: int
    completion: int

    @property
    def total(self) -> int:
        return self.prompt + self.completion


@dataclass(slots=True)
class TokenTerms:
    """`bound` costs nothing to know and is never too small; `least` is what the request asks for however short its
    prompt is; `count` has the prompt counted as the engine would feed it."""

    bound: MostTokens
    least: MostTokens
    count: Callable[[], Awaitable[MostTokens]]
    _counted: MostTokens | None = field(default=None, init=False)

    async def counted(self) -> MostTokens:
        """The exact worst case, counted once however often it is asked for. Raises what `count` raises."""
        if self._counted is None:
            self._counted = await self.count()
        return self._counted

    @property
    def best_known(self) -> MostTokens:
        """Without asking anybody."""
        return self._counted or self.bound
