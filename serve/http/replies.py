"""Replies that work while they are sent: cancelled when their client leaves, and sent in pieces as these are made;
their routes, the headers of rate limits, and the refusals that these count."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from logging import Logger
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from billing.caller import LimitState
from compression.pipeline.errors import CompressionError, UnknownCompressionModel
from models.errors import InvalidField, UnknownModel, UnsupportedOption
from serve.http.request_body import InvalidBody


class ClientGone(Exception):
    """The client closed the connection before the reply was complete."""


@dataclass(slots=True)
class Client:
    """The client of a reply: `gone` tells its leaving from another cancellation."""

    gone: bool = False


@asynccontextmanager
async def cancelled_when_client_leaves(receive: Receive) -> AsyncIterator[Client]:
    """Run the block, and raise `ClientGone` in it as soon as the client disconnects.

    The request's body must have been read, since what `receive` yields after it is the disconnect.
    """
    worker = asyncio.current_task()
    assert worker is not None
    client = Client()

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        client.gone = True
        worker.cancel()

    watcher = asyncio.create_task(watch())
    try:
        yield client
    except asyncio.CancelledError:
        # Another cancellation, such as the server's shutdown, must go on as one.
        if client.gone and worker.uncancel() == 0:
            raise ClientGone from None
        raise
    finally:
        watcher.cancel()


class WorkingReply(Response):
    """A response that does its `work` while it is sent, so that it hears its client leave."""

    def __init__(self, request_id: str, logger: Logger) -> None:
        super().__init__()
        self.request_id = request_id
        self._logger = logger

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises domain errors only before anything was sent."""
        begin_work(scope)
        try:
            async with cancelled_when_client_leaves(receive) as client:
                response = await self.work(send, client)
            if response is not None:
                await response(scope, receive, send)
        except ClientGone:
            self._logger.info("request %s: the client left", self.request_id)

    async def work(self, send: Send, client: Client) -> Response | None:
        """The response that is still to be sent; None where it was sent already."""
        raise NotImplementedError


EVENTS = "text/event-stream; charset=utf-8"
NDJSON = "application/x-ndjson"


class StreamedResponse:
    """Nothing leaves before `start`, so that an earlier error has its own status. `end` sends the last piece."""

    def __init__(self, send: Send, content_type: str) -> None:
        self.started = False
        self._send = send
        self._content_type = content_type

    async def start(self, headers: Mapping[str, str]) -> None:
        fields = {
            "content-type": self._content_type,
            "cache-control": "no-store",
            "x-accel-buffering": "no",
            **headers,
        }
        raw = [(name.lower().encode(), value.encode()) for name, value in fields.items()]
        await self._send({"type": "http.response.start", "status": 200, "headers": raw})
        self.started = True

    async def send(self, piece: bytes) -> None:
        await self._send({"type": "http.response.body", "body": piece, "more_body": True})

    async def end(self, piece: bytes) -> None:
        await self._send({"type": "http.response.body", "body": piece, "more_body": False})


Endpoint = Callable[[Request], Awaitable[Response]]


class PlainRoute(APIRoute):
    """Its endpoint takes the request alone. What it raises is answered by the application's exception handlers."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        self.app = _plain(endpoint)


def _plain(endpoint: Endpoint) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        response = await endpoint(Request(scope, receive, send))
        await response(scope, receive, send)

    return app


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
