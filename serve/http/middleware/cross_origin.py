"""Pages of other origins: which may call this service from a browser, and what of a reply they may read (CORS)."""

from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp

from serve.config.values.origins import ANY
from serve.http.request_id import accept_request_id

METHODS = ("GET", "HEAD", "POST", "DELETE")
# Beside those that a page may always read. Names, not a wildcard: with credentials a wildcard is a name like any other.
EXPOSED = (
    "X-Request-ID",
    "request-id",
    "X-Service-Compression",
    "X-Service-Metering-Status",
    *(f"x-ratelimit-{what}-{of}" for of in ("requests", "tokens") for what in ("limit", "remaining", "reset")),
    "Retry-After",
    "x-should-retry",
)  # fmt: skip
# Seconds for which a browser may keep the answer to a preflight.
MAX_AGE_S = 600


def open_to(origins: Sequence[str], app: ASGIApp) -> ASGIApp:
    """`app` for pages of these origins; without any, `app` as it is: no browser lets a page read its replies."""
    return CrossOrigin(app, origins) if origins else app


class CrossOrigin(CORSMiddleware):
    """Stands around everything else, so that a preflight needs no key and an error can be read as any other reply can.

    A request may have any header: SDKs send many of their own, and none of them gives more rights than the key does.
    """

    def __init__(self, app: ASGIApp, origins: Sequence[str]) -> None:
        super().__init__(
            app,
            allow_origins=origins,
            allow_methods=METHODS,
            allow_headers=("*",),
            # No reply depends on a cookie of ours; but a page may be told to send those of a proxy in front.
            allow_credentials=ANY not in origins,
            allow_private_network=True,
            expose_headers=EXPOSED,
            max_age=MAX_AGE_S,
        )

    def preflight_response(self, request_headers: Headers) -> Response:
        """With a request id, as every response has."""
        response = super().preflight_response(request_headers)
        given = request_headers.get("x-request-id")
        response.headers["X-Request-ID"] = accept_request_id(given.encode("latin-1") if given else None)
        return response
