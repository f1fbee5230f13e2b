"""A delivery: one event on its way to one endpoint, and when it is tried again."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

State = Literal["waiting", "delivered", "failed", "cancelled"]
STATES: tuple[State, ...] = get_args(State)
# What a try came to: `refused` is any answer but 2xx and 410, `unreachable` no answer in time.
Result = Literal["delivered", "refused", "unreachable", "gone"]
RESULTS: tuple[Result, ...] = get_args(Result)

FIRST_PAUSE_S = 10.0
LONGEST_PAUSE_S = 6 * 3600.0
MAX_ERROR_CHARS = 256


@dataclass(frozen=True, slots=True)
class Delivery:
    """One row, with its event's type, as an operator reads it."""

    event_id: str
    type: str
    workspace_id: str | None
    endpoint_id: str
    state: State
    attempts: int
    created_at: datetime
    due_at: datetime
    last_tried_at: datetime | None
    last_status: int | None
    last_error: str | None
    delivered_at: datetime | None


@dataclass(frozen=True, slots=True)
class Attempt:
    """What is sent next to an endpoint that this worker has claimed, and with which sealed secrets it is signed."""

    endpoint_id: str
    worker: str
    url: str
    event_id: str
    payload: str
    attempts: int
    secrets: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """`status` is the receiver's, where it answered; `error` is for the operator, and holds nothing of its answer."""

    result: Result
    status: int | None = None
    error: str | None = None


def pause_after(attempts: int, chance: float) -> float:
    """Seconds until the next try, after so many: doubles up to six hours, a quarter more or less by `chance` (0 to 1),
    so that receivers that failed together are not all tried at the same moment."""
    doubled = FIRST_PAUSE_S * 2.0 ** min(attempts - 1, 16)
    return min(LONGEST_PAUSE_S, doubled) * (0.75 + 0.5 * chance)
