"""Limits a minute of a key, beside its project's: both count a request, or neither does."""

from dataclasses import replace
from typing import ClassVar

from billing.caller import Caller, LimitState, WindowState
from billing.errors import RateLimited


class KeyRateLimited(RateLimited):
    """A limit of the key is used up. No limit has counted the request."""

    scope: ClassVar[str] = "key"

    def __init__(self, refused: RateLimited) -> None:
        Exception.__init__(self, str(refused).replace("project rate limit", "API key rate limit", 1))
        self.which = refused.which
        self.limit = refused.limit
        self.retry_after_s = refused.retry_after_s
        self.state = refused.state


def counted_by_key(caller: Caller) -> Caller:
    """The same caller as one that the counters know by its key."""
    return replace(caller, project_id=f"key:{caller.limits_key_id}", limits=caller.key_limits)


def tighter(one: LimitState, other: LimitState) -> LimitState:
    """Of each limit the one that leaves less."""
    return LimitState(_less(one.requests, other.requests), _less(one.tokens, other.tokens))


def _less(one: WindowState | None, other: WindowState | None) -> WindowState | None:
    if one is None or other is None:
        return one or other
    return min(one, other, key=lambda window: window.remaining)
