"""The middleware around every route: ids of requests, bounds on bodies, hosts, and the last resort for errors."""

import asyncio
import logging
import os
import re
from collections import deque
from collections.abc import Mapping, Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.config.values import ANY
from serve.http.error_dialects import ANTHROPIC, OPENAI, response_of
from serve.http.errors import unexpected_problem

ID_BYTES = 16
IDS_PER_DRAW = 256

_drawn: list[str] = []
# A forked child must not give out its parent's ids.
os.register_at_fork(after_in_child=_drawn.clear)


def fresh_id() -> str:
    """32 hexadecimal digits, 128 random bits, drawn many at a time: each system call for random bytes hands the
    interpreter to another thread, and to get it back takes longer than all else. Safe in any thread."""
    try:
        return _drawn.pop()
    except IndexError:
        digits = os.urandom(ID_BYTES * IDS_PER_DRAW).hex()
        first, *others = (digits[at : at + 2 * ID_BYTES] for at in range(0, len(digits), 2 * ID_BYTES))
        _drawn.extend(others)
        return first


MAX_LENGTH = 128
logger = logging.getLogger("pith.http")


def accept_request_id(given: bytes | None) -> str:
    """Return the caller's id, or a new one when it is absent, empty, too long or not printable ASCII."""
    if given is not None and 0 < len(given) <= MAX_LENGTH and all(0x20 <= byte < 0x7F for byte in given):
        return given.decode("ascii")
    return f"req_{fresh_id()}"


class RequestIdMiddleware:
    """Puts `X-Request-ID` on each response, and turns what no handler caught into the contract's 500."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = next((value for name, value in scope["headers"] if name == b"x-request-id"), None)
        request_id = accept_request_id(given)
        scope.setdefault("state", {})["request_id"] = request_id
        started = False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                MutableHeaders(scope=message)["X-Request-ID"] = request_id
                if scope["path"].startswith(ANTHROPIC):
                    # Where Anthropic's SDKs look for it.
                    MutableHeaders(scope=message)["request-id"] = request_id
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except ClientDisconnect:
            logger.info("request %s: the client left while it sent the body", request_id)
        except Exception:
            # The framework has answered already, unless it failed outside of every route.
            logger.exception("request %s failed unexpectedly", request_id)
            if not started:
                answer = response_of(unexpected_problem(), scope["path"], request_id)
                await answer(scope, receive, send_with_id)


METHODS = ("GET", "HEAD", "POST", "DELETE")
# Beside those that a page may always read. Names, not a wildcard: with credentials a wildcard is a name like any other.
EXPOSED = (
    "X-Request-ID",
    "request-id",
    "X-Service-Compression",
    "X-Service-Metering-Status",
    *(f"x-ratelimit-{what}-{of}" for of in ("requests", "tokens") for what in ("limit", "remaining", "reset")),
    "Retry-After",
    "x-should-retry",
)  # fmt: skip
# Seconds for which a browser may keep the answer to a preflight.
MAX_AGE_S = 600


def open_to(origins: Sequence[str], app: ASGIApp) -> ASGIApp:
    """`app` for pages of these origins; without any, `app` as it is: no browser lets a page read its replies."""
    return CrossOrigin(app, origins) if origins else app


class CrossOrigin(CORSMiddleware):
    """Stands around everything else, so that a preflight needs no key and an error can be read as any other reply can.

    A request may have any header: SDKs send many of their own, and none of them gives more rights than the key does.
    """

    def __init__(self, app: ASGIApp, origins: Sequence[str]) -> None:
        super().__init__(
            app,
            allow_origins=origins,
            allow_methods=METHODS,
            allow_headers=("*",),
            # No reply depends on a cookie of ours; but a page may be told to send those of a proxy in front.
            allow_credentials=ANY not in origins,
            allow_private_network=True,
            expose_headers=EXPOSED,
            max_age=MAX_AGE_S,
        )

    def preflight_response(self, request_headers: Headers) -> Response:
        """With a request id, as every response has."""
        response = super().preflight_response(request_headers)
        given = request_headers.get("x-request-id")
        response.headers["X-Request-ID"] = accept_request_id(given.encode("latin-1") if given else None)
        return response


# At half a millisecond each, a turn of a few milliseconds. As many clients as this never wait for one another.
AT_ONCE = 16
# All routes that do any work are below; /health and /ready are not.
PREFIXES = ("/v1/", "/openai/", "/anthropic/")


class Pacer:
    """At most `at_once` start in one turn of the loop, in order of arrival. A thousand that come at once would
    otherwise all start in the same one, and a health probe would wait for all of them."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._at_once = at_once
        self._left = at_once
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def begin(self) -> None:
        """Returns when it is the caller's turn: at once if few have started in this one."""
        if self._left == 0:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
            return
        if self._left == self._at_once:
            asyncio.get_running_loop().call_soon(self._next)
        self._left -= 1

    def _next(self) -> None:
        self._left = self._at_once
        while self._waiting and self._left:
            turn = self._waiting.popleft()
            # Cancelled where the request was given up.
            if not turn.done():
                turn.set_result(None)
                self._left -= 1
        if self._left < self._at_once:
            asyncio.get_running_loop().call_soon(self._next)


class PacingMiddleware:
    """Each request to the API waits for its turn; a probe does not."""

    def __init__(self, app: ASGIApp, turns: Pacer) -> None:
        self._app = app
        self._turns = turns

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(PREFIXES):
            await self._turns.begin()
        await self._app(scope, receive, send)


class BodyLimitMiddleware:
    """Stops reading a body at the limit, so that no client can fill the memory. The route answers 422.

    The rest of the body is read and thrown away, up to `DISCARD_FACTOR` limits, because a client that is still
    sending sees a reset connection instead of the answer. A route in `larger`, by its path, has a limit of its own: it
    reads its body in pieces, and nothing beyond the limit is read.
    """

    DISCARD_FACTOR = 8

    def __init__(self, app: ASGIApp, max_bytes: int, larger: Mapping[str, int] | None = None) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._larger = larger or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        seen = 0
        most = self._larger.get(scope["path"], self._max_bytes)
        discarded = self._max_bytes * self.DISCARD_FACTOR

        async def receive_bounded() -> Message:
            nonlocal seen
            message = await receive()
            if message["type"] != "http.request":
                return message
            seen += len(message.get("body", b""))
            if seen <= most:
                return message
            scope["state"]["body_too_large"] = most
            while message.get("more_body") and seen <= discarded:
                message = await receive()
                if message["type"] != "http.request":
                    return message
                seen += len(message.get("body", b""))
            return {"type": "http.request", "body": b"", "more_body": False}

        await self._app(scope, receive_bounded, send)


_SLASHES = re.compile(r"//+")
_VERSION = re.compile(rf"{ANTHROPIC}(?:v1/)*(?=(?:messages|models)(?:/|\Z))")


def plain_dialect_path(path: str) -> str:
    """The path that has a route, of one as clients put it together: with a slash at the end, or two where one belongs,
    and with Anthropic's version once, twice or not at all. One of the contract is what it is."""
    plain = path if "//" not in path else _SLASHES.sub("/", path)
    if not plain.startswith((OPENAI, ANTHROPIC)):
        return path
    return _VERSION.sub(f"{ANTHROPIC}v1/", plain.rstrip("/"), count=1)


class DialectPathMiddleware:
    """Gives all that is within it the plain path."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            plain = plain_dialect_path(scope["path"])
            if plain != scope["path"]:
                scope = {**scope, "path": plain, "raw_path": plain.encode()}
        await self._app(scope, receive, send)
