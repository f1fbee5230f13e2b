"""Notes on a request, gathered on its way for the line that is written when it is over."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from time import perf_counter


@dataclass(slots=True)
class RequestNotes:
    """Ids, counts and seconds of one request: nothing that its caller wrote but the two ids it may choose."""

    request_id: str
    trace_id: str | None = None
    began: float = field(default_factory=perf_counter)
    workspace_id: str | None = None
    project_id: str | None = None
    key_id: str | None = None
    model: str | None = None
    stream: bool = False
    # Of all that the request was charged for: a batch of compressions has several parts.
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cost_nano_usd: int = 0
    metering: str | None = None
    # The class of what ended it; None where nothing failed.
    error: str | None = None
    client_left: bool = False
    queue_s: float | None = None
    first_token_s: float | None = None
    _asked_at: float | None = None

    def charge(self, *, prompt: int, completion: int, cached: int, cost_nano_usd: int, metering: str) -> None:
        """One part was settled."""
        self.prompt_tokens += prompt
        self.completion_tokens += completion
        self.cached_tokens += cached
        self.cost_nano_usd += cost_nano_usd
        self.metering = metering

    def ask_engine(self) -> None:
        """The request is on its way to an engine, and waits for its turn."""
        self._asked_at = perf_counter()

    def see(self, completion_tokens: int) -> None:
        """A sign of life from the engine: the first means that it was given the prompt."""
        if self.queue_s is None and self._asked_at is not None:
            self.queue_s = perf_counter() - self._asked_at
        if completion_tokens and self.first_token_s is None:
            self.first_token_s = perf_counter() - self.began


_current: ContextVar[RequestNotes | None] = ContextVar("request_notes", default=None)


def current_notes() -> RequestNotes | None:
    """Those of the request that this task works for; None where none are taken."""
    return _current.get()


def take_notes(notes: RequestNotes) -> None:
    """From here on in this task, and in those that it begins."""
    _current.set(notes)
