"""Whether the service lives and whether it can serve; public, and a plain yes or no."""

from collections.abc import Awaitable, Callable

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from serve.http.openapi import REQUEST_ID_HEADER


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
