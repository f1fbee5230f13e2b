"""A webhook: where somebody wants to be told, and of what."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from ipaddress import ip_address
from typing import Literal, get_args
from urllib.parse import SplitResult, urlsplit

from billing.webhooks.errors import InvalidEndpoint

EventType = Literal[
    "limit.reached",
    "collection.opened",
    "collection.paid",
    "collection.failed",
    "collection.void",
    "webhook.test",
]
EVENT_TYPES: tuple[EventType, ...] = get_args(EventType)
State = Literal["active", "disabled", "removed"]

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
    state: State
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
