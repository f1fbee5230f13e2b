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
        return usage.prompt_tokens <= self.prompt and usage.completion_tokens <= self.completion


@dataclass(slots=True)
class TokenTerms:
    """The tokens that a request can ask of its model.

    `bound` costs nothing to know; `least` is what the request asks for however short its prompt is; `count` has the
    prompt counted as the engine would feed it. Unless `bound_is_proven`, nothing is held before that.
    `limits_completion` says whether generated tokens count against the project's limit, as read ones do.
    """

    model_id: str
    bound: MostTokens
    least: MostTokens
    count: Callable[[], Awaitable[MostTokens]]
    bound_is_proven: bool = True
    limits_completion: bool = True
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

    def limited(self, most: MostTokens) -> int:
        """How many of these tokens count against the project's limit."""
        return most.prompt + most.completion if self.limits_completion else most.prompt
