"""Routes of every server: the plain route of hot endpoints, /health and /ready, and the viewers of /openapi.json."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import fastapi_standalone_docs
from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from serve.http.openapi import REQUEST_ID_HEADER

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


class Health(BaseModel):
    """`ok`, or why not."""

    status: str


def health_routes(ready: Callable[[], Awaitable[bool]]) -> APIRouter:
    routes = APIRouter(tags=["health"])

    # Load tools look for it below the address that they are given.
    @routes.get("/openai/health", include_in_schema=False)
    @routes.head("/health", include_in_schema=False)
    @routes.get("/health", response_model=Health, responses={200: {"headers": REQUEST_ID_HEADER}})
    async def health() -> Response:
        """The HTTP server answers."""
        return JSONResponse({"status": "ok"})

    @routes.head("/ready", include_in_schema=False)
    @routes.get(
        "/ready",
        response_model=Health,
        responses={
            200: {"headers": REQUEST_ID_HEADER},
            503: {
                "model": Health,
                "description": "The default model is not up.",
                "headers": REQUEST_ID_HEADER,
            },
        },
    )
    async def readiness() -> Response:
        """The default model has a replica that answers."""
        if await ready():
            return JSONResponse({"status": "ok"})
        return JSONResponse({"status": "starting"}, status_code=503, headers={"Retry-After": "5"})

    return routes


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
