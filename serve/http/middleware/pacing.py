"""Starts a few requests in each turn of the event loop.

A thousand that come at once would otherwise all start in the same turn, and everything else, a health probe above all,
would wait for all of them.
"""

import asyncio
from collections import deque

from starlette.types import ASGIApp, Receive, Scope, Send

# At half a millisecond each, a turn of a few milliseconds. As many clients as this never wait for one another.
AT_ONCE = 16
# All routes that do any work are below; /health and /ready are not.
PREFIXES = ("/v1/", "/openai/", "/anthropic/")


class Pacer:
    """At most `at_once` start in one turn of the loop, in order of arrival."""

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
