"""What a request can use and cost at most, before and after its prompt was counted."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from models.engine import TokenUsage


@dataclass(frozen=True, slots=True)
class MostTokens:
    """No outcome of a request has more tokens of either kind; `completion` is over all of its choices."""

    prompt: int
    completion: int

    def covers(self, usage: TokenUsage) -> bool:
        """No hold covers less than nothing either: no price is defined for it."""
        return 0 <= usage.prompt_tokens <= self.prompt and 0 <= usage.completion_tokens <= self.completion


@dataclass(slots=True)
class TokenTerms:
    """The tokens that a request can ask of its model.

    `bound` costs nothing to know; `least` is what the request asks for however short its prompt is; `count` has the
    prompt counted as the engine would feed it. Unless `bound_is_proven`, nothing is held before that.
    `counts_against_limits` is false for what the limits count elsewhere;
    `limits_completion` says whether generated tokens count against the project's limit, as read ones do.
    `enough` are the generated tokens that do for a caller who gave no limit, where more cannot be had; None: all or
    nothing.
    """

    model_id: str
    bound: MostTokens
    least: MostTokens
    count: Callable[[], Awaitable[MostTokens]]
    bound_is_proven: bool = True
    limits_completion: bool = True
    counts_against_limits: bool = True
    enough: int | None = None
    is_shrunk: bool = field(default=False, init=False)
    _counted: MostTokens | None = field(default=None, init=False)

    async def counted(self) -> MostTokens:
        """The exact worst case, counted once however often it is asked for. Raises what `count` raises."""
        if self._counted is None:
            self._counted = await self.count()
        return self._within(self._counted)

    @property
    def best_known(self) -> MostTokens:
        """Without asking anybody."""
        return self._within(self._counted or self.bound)

    def shrink(self) -> None:
        """Ask for no more generated tokens than are enough, where that is known."""
        self.is_shrunk = self.enough is not None

    def _within(self, most: MostTokens) -> MostTokens:
        if not self.is_shrunk or self.enough is None:
            return most
        return MostTokens(most.prompt, min(most.completion, self.enough))

    def limited(self, most: MostTokens) -> int:
        """How many of these tokens count against the project's limit."""
        if not self.counts_against_limits:
            return 0
        return most.prompt + most.completion if self.limits_completion else most.prompt
