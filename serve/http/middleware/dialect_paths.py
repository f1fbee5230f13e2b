"""Paths of the dialects as clients put them together: with a slash at the end, or two where one belongs."""

import re

from starlette.types import ASGIApp, Receive, Scope, Send

from serve.http.error_dialects import ANTHROPIC, OPENAI

_SLASHES = re.compile(r"//+")


def plain_dialect_path(path: str) -> str:
    """The path that has a route; one of the contract is what it is."""
    if "//" not in path and not path.endswith("/"):
        return path
    plain = _SLASHES.sub("/", path)
    return plain.rstrip("/") if plain.startswith((OPENAI, ANTHROPIC)) else path


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
