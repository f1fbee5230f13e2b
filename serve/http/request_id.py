"""Ids that cannot be guessed, and the correlation id of a request: the middleware that takes and sends it."""

import logging
import os

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.http.dialect_paths import ANTHROPIC
from serve.http.error_dialects import response_of
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
