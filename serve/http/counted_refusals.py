"""Counting of requests whose bodies are refused: each counts against the limits of its sender, or they would be free.

A request that is admitted is counted there; this is for what is refused before.
"""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.types import Scope

from compression.pipeline.errors import CompressionError, UnknownCompressionModel
from models.errors import InvalidField, UnknownModel, UnsupportedOption
from serve.http.body import InvalidBody

Count = Callable[[], Awaitable[None]]
# What a body is refused with before its request is admitted.
REFUSALS: tuple[type[Exception], ...] = (
    InvalidBody,
    InvalidField,
    UnsupportedOption,
    UnknownModel,
    UnknownCompressionModel,
    CompressionError,
)
_COUNT = "count_refusal"


def count_refusals(request: Request, count: Count) -> None:
    """From here on until `begin_work`, a refusal of the request's body is counted. `count` raises where a limit is
    reached, and that is the answer then."""
    setattr(request.state, _COUNT, count)


def begin_work(scope: Scope) -> None:
    """The request is about to be admitted, and counted by that."""
    scope.get("state", {}).pop(_COUNT, None)


async def counted(request: Request) -> None:
    """Count a refusal of this request's body. Raises `RateLimited` and `LimitsUnavailable`."""
    count: Count | None = getattr(request.state, _COUNT, None)
    if count is not None:
        await count()
