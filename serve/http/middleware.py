"""What every response needs, whatever route or failure made it: a request id, and an error body instead of a trace."""

from __future__ import annotations

import logging

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.http.errors import unexpected_problem
from serve.http.request_id import accept_request_id

logger = logging.getLogger("pith.http")


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
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except ClientDisconnect:
            logger.info("request %s: the client left while it sent the body", request_id)
        except Exception:
            # The framework has answered already, unless it failed outside of every route.
            logger.exception("request %s failed unexpectedly", request_id)
            if not started:
                await unexpected_problem().response()(scope, receive, send_with_id)


class BodyLimitMiddleware:
    """Stops reading a body at the limit, so that nobody can fill the memory. The route answers 422.

    The rest of the body is read and thrown away, up to `DISCARD_FACTOR` limits, because a client that is still
    sending sees a reset connection instead of the answer.
    """

    DISCARD_FACTOR = 8

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        seen = 0

        async def receive_bounded() -> Message:
            nonlocal seen
            message = await receive()
            if message["type"] != "http.request":
                return message
            seen += len(message.get("body", b""))
            if seen <= self._max_bytes:
                return message
            scope["state"]["body_too_large"] = self._max_bytes
            while message.get("more_body") and seen <= self._max_bytes * self.DISCARD_FACTOR:
                message = await receive()
                if message["type"] != "http.request":
                    return message
                seen += len(message.get("body", b""))
            return {"type": "http.request", "body": b"", "more_body": False}

        await self._app(scope, receive_bounded, send)
