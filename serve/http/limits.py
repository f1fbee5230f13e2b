"""Addresses of clients, rate limits as headers tell of them, and refusals that count."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from ipaddress import IPv6Address, ip_address

from starlette.requests import Request
from starlette.types import Scope

from billing.caller import LimitState
from billing.errors import InvalidKey
from compression.pipeline.errors import CompressionError, UnknownCompressionModel
from models.errors import InvalidField, UnknownModel, UnsupportedOption
from serve.config.values import Network
from serve.http.request_body import InvalidBody

# An IPv6 client has at least this much of the address space to itself, and could use a new address each time.
IPV6_CLIENT_BITS = 64
UNKNOWN = "unknown"


def client_of(address: str | None) -> str:
    """The client behind an address: an IPv4 address itself, an IPv6 address's network."""
    try:
        parsed = ip_address(plain_address(address))
    except ValueError:
        return UNKNOWN
    if isinstance(parsed, IPv6Address):
        return f"{int(parsed) >> (128 - IPV6_CLIENT_BITS):x}"
    return str(parsed)


def plain_address(address: str | None) -> str:
    """Without a zone, and an IPv4-mapped IPv6 address as plain IPv4."""
    text = (address or "").partition("%")[0]
    if text.lower().startswith("::ffff:"):
        mapped = IPv6Address(text).ipv4_mapped
        return str(mapped) if mapped is not None else text
    return text


def is_in_networks(address: str | None, among: Iterable[Network]) -> bool:
    """True if the address belongs to one of the networks."""
    try:
        parsed = ip_address(plain_address(address))
    except ValueError:
        return False
    return any(parsed in network for network in among)


def rate_limit_headers(state: LimitState) -> dict[str, str]:
    """`x-ratelimit-*` for the limits that the project has; none for a project without limits."""
    headers: dict[str, str] = {}
    for name, window in (("requests", state.requests), ("tokens", state.tokens)):
        if window is not None:
            headers[f"x-ratelimit-limit-{name}"] = str(window.limit)
            headers[f"x-ratelimit-remaining-{name}"] = str(window.remaining)
            headers[f"x-ratelimit-reset-{name}"] = f"{window.reset_s:g}s"
    return headers


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
    """From here on until `begin_work`, a refusal of the request's body is counted, or it would be free. `count`
    raises where a limit is reached, and that is the answer then."""
    setattr(request.state, _COUNT, count)


def begin_work(scope: Scope) -> None:
    """The request is about to be admitted, and counted by that."""
    scope.get("state", {}).pop(_COUNT, None)


async def counted(request: Request) -> None:
    """Count a refusal of this request's body. Raises `RateLimited` and `LimitsUnavailable`."""
    count: Count | None = getattr(request.state, _COUNT, None)
    if count is not None:
        await count()


AT_ONCE = 60
A_MINUTE = 60
# The client that was wrong longest ago is forgotten first.
MAX_CLIENTS = 10_000


class TooManyWrongKeys(Exception):
    """This client has sent more wrong keys than it may; the last one was wrong as well."""

    def __init__(self, retry_after_s: float) -> None:
        super().__init__(
            f"too many wrong API keys from your address; at most {A_MINUTE} a minute are looked at"
        )
        self.retry_after_s = retry_after_s


@dataclass(slots=True)
class _Count:
    wrong: float
    at: datetime


class WrongKeys:
    """The wrong keys of each client: a bucket of `AT_ONCE` that leaks `A_MINUTE` a minute.

    It never refuses a right key: clients behind one address share its count, and one of them guessing must not shut the
    others out. Guessing is hopeless (a key has 256 random bits); this slows and shows clients that retry for ever.
    """

    def __init__(self) -> None:
        self._counts: OrderedDict[str, _Count] = OrderedDict()

    def add(self, client: str, error: InvalidKey, *, now: datetime) -> Exception:
        """Count one. Returns the error for the client: the given one, or that there were too many."""
        count = self._counts.pop(client, None) or _Count(0, now)
        passed_s = max(0.0, (now - count.at).total_seconds())
        count.wrong, count.at = max(0.0, count.wrong - passed_s * A_MINUTE / 60) + 1, now
        self._counts[client] = count
        if len(self._counts) > MAX_CLIENTS:
            self._counts.popitem(last=False)
        if count.wrong <= AT_ONCE:
            return error
        # No more than what leaks in a minute, or an address would stay refused long after a flood.
        count.wrong = min(count.wrong, AT_ONCE + 1)
        return TooManyWrongKeys(60 / A_MINUTE)
