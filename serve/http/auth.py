"""Authentication: the bearer key of a request as a caller that billing knows, and the route that the key may use."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

from starlette.requests import Request

from billing.accounts.accounts import Accounts
from billing.accounts.keys import RouteName, require_route
from billing.caller import Caller
from billing.errors import InvalidKey
from serve.http.errors import MissingKey
from serve.http.limits import WrongKeys, client_of
from serve.http.request_body import MAX_VALUES, Body, check_shape, parse_json, refuse_oversized_body
from serve.tracing.request_record import current_record

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


MAX_KEY_LENGTH = 512
# A body that took longer may have outlived its key: the check is a look into a cache.
RECHECK_AFTER_S = 0.1

Authenticate = Callable[[Request], Awaitable[Caller]]


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
    accounts: Accounts, clock: Callable[[], datetime], *, key_of: Callable[[Request], str] = given_key
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
    """The caller, known before a byte of the body is read, and the body as JSON of no shape yet. A key that was revoked
    while a slow body came is refused as one that was revoked before. Raises what `authenticate` raises, and
    `InvalidBody`."""
    loop = asyncio.get_running_loop()
    caller = await authenticate(request)
    began = loop.time()
    raw = await request.body()
    if loop.time() - began > RECHECK_AFTER_S:
        caller = await authenticate(request)
    refuse_oversized_body(request)
    return caller, parse_json(raw, request.headers.get("content-type"), most=most)
