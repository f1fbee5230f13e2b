"""`/` and `/playground/…`: the playground's page, its files, and what it is told of this server."""

import orjson
from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from serve.money.price_book import PriceBook
from serve.playground.about import About, about_fields
from serve.playground.page_files import PageFile, page_files

ABOUT = "/playground/about.json"
RUNNING = "/playground/running.json"
ANY_FILE = "/playground/{name:path}"
# Only what this server sends is run, shown or asked. Scripts can make no HTML of text, whatever they are given.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    # Asked for again each time: after an upgrade no old module meets a new one.
    "Cache-Control": "no-cache",
}


def page_routes(about: About, prices: PriceBook) -> APIRouter:
    """The files stand in a table that is made at the start: a caller's path is looked up there, and names no file."""
    routes = APIRouter(include_in_schema=False)
    files = {file.path: file for file in page_files()}

    @routes.api_route(ABOUT, methods=["GET", "HEAD"])
    async def read_about() -> Response:
        """What the page shows of models, prices and the demo: nothing that is not public."""
        body = orjson.dumps(about_fields(about, await prices.current()))
        return Response(body, media_type="application/json", headers=HEADERS)

    @routes.api_route(RUNNING, methods=["GET", "HEAD"])
    async def read_running() -> Response:
        """Which models answer now: one that starts on its first request lets the page say so."""
        body = orjson.dumps({"object": "running", "models": dict(await about.running())})
        return Response(body, media_type="application/json", headers=HEADERS)

    @routes.api_route("/", methods=["GET", "HEAD"])
    async def send_page(request: Request) -> Response:
        return _sent(files["/"], request)

    @routes.api_route(ANY_FILE, methods=["GET", "HEAD"])
    async def send_file(request: Request) -> Response:
        file = files.get(request.url.path)
        if file is None:
            raise HTTPException(404, "Not Found")
        return _sent(file, request)

    return routes


def _sent(file: PageFile, request: Request) -> Response:
    headers = {**HEADERS, "ETag": file.etag}
    if _has(request.headers.get("if-none-match", ""), file.etag):
        return Response(status_code=304, headers=headers)
    return Response(file.body, media_type=file.media_type, headers=headers)


def _has(if_none_match: str, etag: str) -> bool:
    """A proxy that compresses may have made the validator a weak one."""
    known = [one.strip().removeprefix("W/") for one in if_none_match.split(",")]
    return etag in known or "*" in known
