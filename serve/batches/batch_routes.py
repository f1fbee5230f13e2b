"""`/openai/v1/batches`: as OpenAI's clients make, list, look at and cancel them."""

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from serve.batches.batch_object import batch_object
from serve.batches.batch_request import BatchRequest
from serve.batches.batches import Batches
from serve.batches.file_routes import FileRoutes, answer, listing
from serve.batches.pages import limit_of
from serve.dialects.documentation import openai_operation
from serve.http.auth import authenticated_request
from serve.http.openapi import BEARER

MOST_LISTED, LISTED = 100, 20
ID = ("batch_id",)


def _documented(page: str, *statuses: int, path_parameters: Sequence[str] = ()) -> dict[str, Any]:
    return openai_operation(
        f"batch/{page}",
        *(429, 503, *statuses),
        body=BatchRequest if page == "create" else None,
        is_billed=False,
        path_parameters=path_parameters,
    )


def batch_routes(batches: Batches, needed: FileRoutes) -> APIRouter:
    """Callers are counted as those of files are."""
    routes = APIRouter(prefix="/openai/v1", tags=["openai"], dependencies=[BEARER])

    @routes.post("/batches", **_documented("create", 400, 404, 413))
    async def create_batch(request: Request) -> Response:
        """Run the requests of a file when there is room for them, at a part of their price."""
        await needed.caller(request)
        caller, asked = await authenticated_request(request, needed.authenticate, BatchRequest)
        return answer(batch_object(await batches.make(caller, asked)))

    @routes.get("/batches", **_documented("list", 400, 404))
    async def list_batches(request: Request) -> Response:
        """The project's batches, the newest first: `after`, `limit`."""
        caller, query = await needed.caller(request), request.query_params
        limit = limit_of(query, default=LISTED, most=MOST_LISTED)
        found = await batches.listed(caller, limit=limit, after=query.get("after"))
        return answer(listing([batch_object(one) for one in found], limit))

    @routes.get("/batches/{batch_id}", **_documented("retrieve", 404, path_parameters=ID))
    async def retrieve_batch(request: Request) -> Response:
        """How far a batch is; 404 for another project's."""
        caller = await needed.caller(request)
        return answer(batch_object(await batches.find(caller, request.path_params["batch_id"])))

    @routes.post("/batches/{batch_id}/cancel", **_documented("cancel", 404, 409, path_parameters=ID))
    async def cancel_batch(request: Request) -> Response:
        """Run no more of its requests. What has run is in its files."""
        caller = await needed.caller(request)
        return answer(batch_object(await batches.cancel(caller, request.path_params["batch_id"])))

    return routes
