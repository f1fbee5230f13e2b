"""Webhooks as values: an endpoint, a delivery to it, and what can go wrong with either."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from ipaddress import ip_address
from typing import Literal, get_args
from urllib.parse import SplitResult, urlsplit

from billing.errors import BillingError


class InvalidEndpoint(BillingError, ValueError):
    """A URL or an event type of a webhook cannot be used; the message names it."""


class UnknownEndpoint(BillingError, LookupError):
    """No webhook has this id, or it was removed."""

    def __init__(self, ref: str) -> None:
        super().__init__(f"no webhook has the id {ref!r}")


class UnknownEvent(BillingError, LookupError):
    """Nothing of this event is kept for any webhook that is active."""

    def __init__(self, ref: str) -> None:
        super().__init__(f"no event {ref!r} is kept for a webhook that is active")


class TooManyEndpoints(BillingError):
    """The workspace, or the whole service, has as many webhooks as it may."""

    def __init__(self, most: int) -> None:
        super().__init__(
            f"there are {most} webhooks already, which is all that there may be; remove one first"
        )


class SecretUnreadable(BillingError):
    """A webhook's secret cannot be opened: it was sealed with another pepper."""

    def __init__(self, endpoint_id: str) -> None:
        super().__init__(
            f"the secret of webhook {endpoint_id} was sealed with another pepper: restore the pepper, or rotate it"
        )


EventType = Literal[
    "limit.reached",
    "budget.reached",
    "collection.opened",
    "collection.paid",
    "collection.failed",
    "collection.void",
    "webhook.test",
]
EVENT_TYPES: tuple[EventType, ...] = get_args(EventType)
EndpointState = Literal["active", "disabled", "removed"]

MAX_URL_CHARS = 2048


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One row, without its secret. Without a workspace it is of the whole service. No `events`: all of them.

    `failures` are tries in a row that failed.
    """

    id: str
    workspace_id: str | None
    workspace_name: str | None
    url: str
    events: tuple[str, ...]
    state: EndpointState
    state_reason: str | None
    failures: int
    created_at: datetime


def checked_url(url: str, *, allow_http: bool) -> str:
    """A URL that may be sent to, as far as its text tells: the address is checked when it is connected to.

    Raises `InvalidEndpoint`.
    """
    if not (1 <= len(url) <= MAX_URL_CHARS and url.isascii() and url.isprintable() and " " not in url):
        raise InvalidEndpoint(f"url: must be 1 to {MAX_URL_CHARS} printable ASCII characters without spaces")
    try:
        parts = urlsplit(url)
        has_host, _ = bool(parts.hostname), parts.port
    except ValueError as error:
        raise InvalidEndpoint(f"url: {error}") from error
    if parts.scheme not in ("https", "http") or not has_host:
        raise InvalidEndpoint("url: must begin with https:// and name a host")
    if "@" in parts.netloc or parts.fragment:
        raise InvalidEndpoint("url: must have no user, password or fragment")
    if parts.scheme == "http" and not (allow_http or _is_loopback(parts)):
        raise InvalidEndpoint("url: must be https, unless webhooks.allow_http is set or the host is loopback")
    return url


def checked_events(events: Iterable[str]) -> tuple[str, ...]:
    """Each once, in the order of `EVENT_TYPES`. Raises `InvalidEndpoint` for one that there is not."""
    wanted = set(events)
    unknown = sorted(wanted - set(EVENT_TYPES))
    if unknown:
        raise InvalidEndpoint(f"events: {unknown[0][:64]!r} is none of {', '.join(EVENT_TYPES)}")
    return tuple(one for one in EVENT_TYPES if one in wanted)


def host_of(url: str) -> str:
    """For logs: the path, too, may be a secret of the receiver's."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _is_loopback(parts: SplitResult) -> bool:
    host = parts.hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


DeliveryState = Literal["waiting", "delivered", "failed", "cancelled"]
STATES: tuple[DeliveryState, ...] = get_args(DeliveryState)
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
    state: DeliveryState
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
