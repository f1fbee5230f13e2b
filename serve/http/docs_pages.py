"""`/docs` and `/redoc`: viewers of `/openapi.json`, all of whose files come from this machine."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import fastapi_standalone_docs
from fastapi import APIRouter
from starlette.responses import FileResponse, Response

_PAGES = Path(__file__).parent / "pages"
# The package is used for the viewers' files alone; its own pages allow scripts within the page.
_VIEWERS = Path(fastapi_standalone_docs.__path__[0]) / "static"

PAGES = {"/docs": _PAGES / "swagger.html", "/redoc": _PAGES / "redoc.html"}
FILES = {
    "/docs/start.js": _PAGES / "swagger.js",
    "/docs/swagger-ui-bundle.js": _VIEWERS / "swagger/swagger-ui-bundle.js",
    "/docs/swagger-ui.css": _VIEWERS / "swagger/swagger-ui.css",
    "/redoc/start.js": _PAGES / "redoc.js",
    "/redoc/redoc.standalone.js": _VIEWERS / "redoc/redoc.standalone.js",
    "/redoc/logo-mini.svg": _VIEWERS / "redoc/logo-mini.svg",
}
HEADERS = {
    # Both viewers put style rules into the page, and Redoc searches in a worker that it makes from a blob. Otherwise
    # only what this server sends is run or fetched.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self' data:; connect-src 'self'; worker-src blob:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


def docs_routes() -> APIRouter:
    """One route per file, so that no caller's path ever names a file."""
    routes = APIRouter(include_in_schema=False)
    for path, file in {**PAGES, **FILES}.items():
        routes.add_api_route(path, _sends(file), methods=["GET", "HEAD"])
    return routes


def _sends(file: Path) -> Callable[[], Awaitable[Response]]:
    async def send_file() -> Response:
        return FileResponse(file, headers=HEADERS)

    return send_file
