"""The name of a route by its path, in every dialect: what a key may be restricted to."""

import re

from billing.accounts.powers import RouteName

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
