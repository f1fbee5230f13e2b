"""Paths of the dialects as clients put them together: with a slash at the end, or two where one belongs, and with
Anthropic's version once, twice or not at all, since some clients have it in their base URL and others do not."""

import re

from starlette.types import ASGIApp, Receive, Scope, Send

from serve.http.error_dialects import ANTHROPIC, OPENAI

_SLASHES = re.compile(r"//+")
_VERSION = re.compile(rf"{ANTHROPIC}(?:v1/)*(?=(?:messages|models)(?:/|\Z))")


def plain_dialect_path(path: str) -> str:
    """The path that has a route; one of the contract is what it is."""
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
