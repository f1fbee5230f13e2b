"""Authentication: the bearer key of a request as a caller that billing knows, and the route that the key may use.

Wrong keys are counted by the client that sends them, which its address tells.
"""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Any

from starlette.requests import Request

from billing.accounts.keys import RouteName, require_route
from billing.caller import Caller
from billing.errors import InvalidKey
from billing.labels import TAGS_HEADER, labelled
from serve.config.values import Network
from serve.http.request_body import MAX_VALUES, Body, check_shape, parse_json, refuse_oversized_body
from serve.tracing.request_record import current_record

if TYPE_CHECKING:
    # For types alone: what knows errors should not load a database.
    from billing.accounts.accounts import Accounts

_NAMES: tuple[tuple[str, RouteName], ...] = (
    (r"/(?:openai/)?v1/chat/completions", "chat"),
    (r"/openai/v1/completions", "completions"),
    (r"/openai/v1/responses(?:/.*)?", "responses"),
    (r"/anthropic/v1/messages(?:/.*)?", "messages"),
    (r"/v1/(?:batch/)?compress(?:/.*)?", "compress"),
    (r"/openai/v1/embeddings", "embeddings"),
    (r"/openai/v[12]/rerank", "rerank"),
    (r"/openai/v1/score", "score"),
    (r"/openai/v1/files(?:/.*)?", "files"),
    (r"/openai/v1/batches(?:/.*)?", "batches"),
    (r"/(?:openai/|anthropic/)?v1/models(?:/.*)?", "models"),
    (r"/v1/(?:usage|limits)(?:/.*)?", "usage"),
)
_ROUTES = tuple((re.compile(pattern), name) for pattern, name in _NAMES)


def route_name(path: str) -> RouteName | None:
    """None for a path that no key is asked for."""
    return next((name for pattern, name in _ROUTES if pattern.fullmatch(path)), None)


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


MAX_KEY_LENGTH = 512
# A body that took longer may have outlived its key: the check is a look into a cache.
RECHECK_AFTER_S = 0.1

Authenticate = Callable[[Request], Awaitable[Caller]]


class MissingKey(Exception):
    """The request has no bearer key."""


def bearer_key(authorization: str | None) -> str:
    """The key of an `Authorization: Bearer KEY` header. Raises `MissingKey` when there is none."""
    scheme, _, key = (authorization or "").partition(" ")
    # In a header only these are white space; other kinds could replace a letter that was lost.
    key = key.strip(" \t")
    if scheme.lower() != "bearer" or not key:
        raise MissingKey("send your project API key as: Authorization: Bearer <API_KEY>")
    return key[: MAX_KEY_LENGTH + 1]


def given_key(request: Request) -> str:
    """Raises `MissingKey`."""
    return bearer_key(request.headers.get("authorization"))


def authenticator(
    accounts: "Accounts", clock: Callable[[], datetime], *, key_of: Callable[[Request], str] = given_key
) -> Authenticate:
    """A dependency that resolves the caller of a request. `key_of` says where the key is."""

    wrong_keys = WrongKeys()

    async def caller(request: Request) -> Caller:
        key, now = key_of(request), clock()
        try:
            found = await accounts.authenticate(key, now=now)
        except InvalidKey as error:
            client = client_of(request.client.host if request.client else None)
            raise wrong_keys.add(client, error, now=now) from None
        record = current_record()
        record.workspace_id, record.project_id = found.workspace_id, found.project_id
        record.key_id = found.key_id
        # Every route that takes a key asks for it here.
        require_route(found, route_name(request.url.path))
        return found

    return caller


async def authenticated_request(
    request: Request, authenticate: Authenticate, shape: type[Body], *, most: int = MAX_VALUES
) -> tuple[Caller, Body]:
    """The caller, and what they ask, in `most` values. Raises what `authenticated_json` raises."""
    caller, body = await authenticated_json(request, authenticate, most=most)
    return caller, check_shape(body, shape)


async def authenticated_json(
    request: Request, authenticate: Authenticate, *, most: int = MAX_VALUES
) -> tuple[Caller, Any]:
    """The caller, known before a byte of the body is read, with whom and what that names, and the body as JSON of no
    shape yet. A key that was revoked while a slow body came is refused as one that was revoked before. Raises what
    `authenticate` raises, `InvalidBody` and `InvalidLabel`."""
    loop = asyncio.get_running_loop()
    caller = await authenticate(request)
    began = loop.time()
    raw = await request.body()
    if loop.time() - began > RECHECK_AFTER_S:
        caller = await authenticate(request)
    refuse_oversized_body(request)
    body = parse_json(raw, request.headers.get("content-type"), most=most)
    name = route_name(request.url.path)
    # A batch is no work: its lines name their own.
    if name != "batches":
        header = request.headers.get(TAGS_HEADER)
        caller = labelled(caller, body, is_message=name == "messages", header=header)
    return caller, body
