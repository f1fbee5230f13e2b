"""`/metrics` as an ASGI application: what prometheus_client's own server answers, collected in a thread."""

import asyncio
from typing import Any

from prometheus_client import CollectorRegistry
from starlette.requests import Request
from starlette.responses import Response

from serve.http.errors import http_problem
from serve.metrics.ops_port import scrape_app

# More of them at once only take longer.
AT_ONCE = 4
# Scrapers are few. Whoever asks for more keeps no connection while it waits.
WAITING = 16


class Scrapes:
    """Answers scrapes, compressed where it is asked for."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._app = scrape_app(registry)
        self._room = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0

    async def answer(self, request: Request) -> Response:
        environ = {
            "REQUEST_METHOD": "GET",
            "PATH_INFO": request.url.path,
            "QUERY_STRING": request.url.query,
            "HTTP_ACCEPT_ENCODING": request.headers.get("accept-encoding", ""),
        }
        if self._waiting >= WAITING:
            return http_problem(503, "too many scrapes at once").response()
        self._waiting += 1
        try:
            async with self._room:
                return await asyncio.to_thread(self._collected, environ)
        finally:
            self._waiting -= 1

    def _collected(self, environ: dict[str, Any]) -> Response:
        told: list[Any] = []

        def start(status: str, headers: list[tuple[str, str]]) -> None:
            told[:] = [int(status.split(" ", 1)[0]), dict(headers)]

        body = b"".join(self._app(environ, start))
        status, headers = told
        return Response(body, status_code=status, headers=headers)
