"""The limit on the size of a request's body: it is read no further than that, and the route answers 422."""

from collections.abc import Mapping

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.http.body import InvalidBody, Issue


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


def refuse_oversized_body(request: Request) -> None:
    """Raises `InvalidBody` when the body passed the server's limit."""
    limit = getattr(request.state, "body_too_large", None)
    if limit is not None:
        message = f"the request is larger than this server's limit of {limit} bytes"
        raise InvalidBody(
            (Issue(type="request_too_large", loc=("body",), msg=message, ctx={"max_bytes": limit}),)
        )
