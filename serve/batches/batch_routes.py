"""`/openai/v1/batches`: batches as OpenAI's clients make, list, look at and cancel them."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from billing.batches.batch import Batch, Counts
from serve.batches.batches import Batches, BatchRequest, limit_of
from serve.batches.file_routes import FileRoutes, answer, listing
from serve.dialects.documentation import openai_operation
from serve.http.auth import authenticated_request
from serve.http.openapi import BEARER

MOST_LISTED, LISTED = 100, 20
ID = ("batch_id",)


def batch_object(batch: Batch) -> dict[str, Any]:
    """OpenAI's batch object, with the part of the prices that its requests are charged."""
    new, counts, moments = batch.new, batch.counts, asdict(batch.moments)
    errors = orjson.loads(batch.errors) if batch.errors else None
    return {
        "id": new.id,
        "object": "batch",
        "endpoint": new.endpoint,
        "errors": {"object": "list", "data": errors} if errors else None,
        "input_file_id": new.input_file_id,
        "completion_window": new.completion_window,
        "status": batch.status,
        "output_file_id": batch.output_file_id,
        "error_file_id": batch.error_file_id,
        "created_at": int(moments.pop("created")),
        "expires_at": int(moments.pop("expires")),
        **{f"{name}_at": None if at is None else int(at) for name, at in moments.items()},
        "request_counts": {
            "total": counts.total,
            "completed": counts.completed,
            "failed": counts.failed,
        },
        "usage": _usage(counts) if batch.has_ended else None,
        "metadata": orjson.loads(new.metadata) if new.metadata else None,
        "price_factor": new.price_ppm / 10**6,
    }


def _usage(counts: Counts) -> dict[str, Any]:
    return {
        "input_tokens": counts.prompt_tokens,
        "input_tokens_details": {"cached_tokens": counts.cached_tokens},
        "output_tokens": counts.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": counts.prompt_tokens + counts.completion_tokens,
    }


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
        """A batch, with how far it is; 404 for another project's."""
        caller = await needed.caller(request)
        return answer(batch_object(await batches.find(caller, request.path_params["batch_id"])))

    @routes.post("/batches/{batch_id}/cancel", **_documented("cancel", 404, 409, path_parameters=ID))
    async def cancel_batch(request: Request) -> Response:
        """Run no more of its requests. What has run is in its files."""
        caller = await needed.caller(request)
        return answer(batch_object(await batches.cancel(caller, request.path_params["batch_id"])))

    return routes
