"""A compression model as a server meets it: awaited, bounded in what it lets wait, and closed at the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from compression.pipeline.errors import (
    CompressionError,
    CompressionTimedOut,
    CompressorFailed,
    CompressorOverloaded,
    CompressorUnavailable,
    RefusedRequest,
    TextTooLong,
)
from compression.pipeline.request import CompressionRequest, CompressionResult

log = logging.getLogger(__name__)
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class JobTerms:
    """Whose work it is, where several callers want some at once.

    Payers take turns; a trial, which is free, never delays a payer. `deadline_s` counts from when the
    model accepted the work; None, or more than the model's own, is the model's own.
    """

    payer: str = ""
    is_trial: bool = False
    deadline_s: float | None = None


NO_TERMS = JobTerms()


class CompressionModel(Protocol):
    """One compression model, wherever it runs."""

    async def compress(self, request: CompressionRequest, terms: JobTerms = NO_TERMS) -> CompressionResult:
        """Raises a `CompressionError` for what the caller can put right; `CompressorOverloaded`,
        `CompressorUnavailable`, `CompressionTimedOut` or `CompressorFailed` for what the caller cannot."""
        ...


class BuiltModel(CompressionModel, Protocol):
    """One that this process built, and has to close."""

    async def close(self) -> None:
        """End what runs and free what it holds."""
        ...


class Compresses(Protocol):
    """A compressor that works here and now, as `compression.pipeline.pipeline.Compressor` does."""

    def compress(self, request: CompressionRequest) -> CompressionResult: ...


class BoundedModel:
    """A model in this process; `max_waiting` bounds the requests that are in it at once."""

    def __init__(self, max_waiting: int) -> None:
        self._max_waiting = max_waiting
        self._waiting = 0
        self._closed = False

    async def compress(self, request: CompressionRequest, terms: JobTerms = NO_TERMS) -> CompressionResult:
        # They matter only where a model is shared between callers: `compression.workers`.
        del terms
        if self._closed:
            raise CompressorUnavailable("the compressor is shut down")
        if self._waiting >= self._max_waiting:
            raise CompressorOverloaded(f"{self._waiting} compressions are already waiting")
        self._waiting += 1
        try:
            return await self._compress(request)
        finally:
            self._waiting -= 1

    async def _compress(self, request: CompressionRequest) -> CompressionResult:
        raise NotImplementedError


class LocalModel(BoundedModel):
    """A plain compressor in a thread of its own, so that the event loop stays free."""

    def __init__(self, compressor: Compresses, *, max_waiting: int) -> None:
        super().__init__(max_waiting)
        self._compressor = compressor
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="compress")

    async def _compress(self, request: CompressionRequest) -> CompressionResult:
        return await done(self._thread.submit(self._compressor.compress, request))

    async def close(self) -> None:
        self._closed = True
        self._thread.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True, slots=True)
class CompressionFault:
    """A refusal or failure as a value, since exceptions with fields do not survive every process boundary."""

    kind: Literal["refused", "too_long", "overloaded", "unavailable", "timed_out", "failed"]
    message: str
    field: str = "input"

    def error(self) -> Exception:
        """This fault as an exception."""
        if self.kind == "refused":
            return RefusedRequest(self.field, self.message)
        if self.kind == "too_long":
            return TextTooLong(self.field, self.message)
        return _KINDS[self.kind](self.message)


_KINDS: dict[str, type[Exception]] = {
    "overloaded": CompressorOverloaded,
    "unavailable": CompressorUnavailable,
    "timed_out": CompressionTimedOut,
    "failed": CompressorFailed,
}
UNEXPECTED = CompressionFault("failed", "the compressor failed while it worked on this request")


def fault_of(error: Exception) -> CompressionFault:
    """A refusal or failure as a value; an unexpected cause is for the log only."""
    if isinstance(error, CompressionError):
        return CompressionFault(
            "too_long" if isinstance(error, TextTooLong) else "refused", error.message, error.field
        )
    for kind, raised in _KINDS.items():
        if isinstance(error, raised):
            return CompressionFault(kind, str(error))  # type: ignore[arg-type]
    log.error("a compression failed unexpectedly", exc_info=error)
    return UNEXPECTED


async def as_value(work: Awaitable[Value]) -> Value | CompressionFault:
    """The result of a model's work, with refusals and failures as values."""
    try:
        return await work
    except Exception as error:
        return fault_of(error)


Result = TypeVar("Result")


async def done(running: Future[Result]) -> Result:
    """The result. When cancelled, it raises at once if the work has not begun, and otherwise when it is over, so that
    the canceller knows that nothing is still running."""
    awaited = asyncio.wrap_future(running)
    try:
        return await asyncio.shield(awaited)
    except asyncio.CancelledError:
        if not running.cancel():
            await asyncio.wait((awaited,))
        if not awaited.cancelled():
            # Retrieved, so that asyncio does not report it as never retrieved.
            awaited.exception()
        raise
