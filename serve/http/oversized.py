"""The answer to a body over the limit, which the middleware stopped reading."""

from __future__ import annotations

from starlette.requests import Request

from serve.http.body import InvalidBody, Issue


def refuse_oversized(request: Request) -> None:
    """Raises `InvalidBody` when the body passed the server's limit."""
    limit = getattr(request.state, "body_too_large", None)
    if limit is not None:
        message = f"the request is larger than this server's limit of {limit} bytes"
        raise InvalidBody(
            (Issue(type="request_too_large", loc=("body",), msg=message, ctx={"max_bytes": limit}),)
        )
