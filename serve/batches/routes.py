"""`/openai/v1/files` and `/openai/v1/batches`, as OpenAI's clients use them."""

import logging
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, BinaryIO

import orjson
from fastapi import APIRouter, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Send

from billing.batches.batch import Batch, Counts, FilePage, StorageUnavailable, StoredFile
from billing.caller import Caller
from billing.rate_limits.rate_limits import RateLimits
from serve.batches.batches import Batches, BatchRequest, limit_of, one_of
from serve.batches.files import FORM_BYTES, Files, FormReader, pieces_of, too_large, whole_number
from serve.dialects.documentation import openai_operation
from serve.http.auth import Authenticate, authenticated_request
from serve.http.openapi import BEARER
from serve.http.replies import Client, StreamedResponse, WorkingReply
from serve.http.request_body import refuse_oversized_body

logger = logging.getLogger("pith.files")

PATH = "/openai/v1/files"
MOST_LISTED = 10_000
FILE_ID = ("file_id",)
_FORM = {
    "type": "object",
    "required": ["file", "purpose"],
    "properties": {
        "file": {"type": "string", "format": "binary"},
        "purpose": {"type": "string", "enum": ["batch"]},
    },
}
MOST_BATCHES, BATCHES_LISTED = 100, 20
BATCH_ID = ("batch_id",)


def _documented(
    page: str, *statuses: int, body: type[BatchRequest] | None = None, path_parameters: Sequence[str] = ()
) -> dict[str, Any]:
    return openai_operation(
        page, *(429, 503, *statuses), body=body, is_billed=False, path_parameters=path_parameters
    )


def _upload_documented() -> dict[str, Any]:
    found = _documented("files/create", 400, 413, 507)
    form = {"required": True, "content": {"multipart/form-data": {"schema": _FORM}}}
    found["openapi_extra"]["requestBody"] = form
    return found


@dataclass(frozen=True, slots=True)
class FileRoutes:
    """Collaborators of the routes."""

    files: Files
    limiter: RateLimits
    authenticate: Authenticate
    clock: Callable[[], datetime]

    async def caller(self, request: Request) -> Caller:
        """The caller, within a limit of its own. Raises what `authenticate` and `RateLimits.admit` raise."""
        caller = await self.authenticate(request)
        counted = caller.counted_apart("files")
        await (await self.limiter.admit(counted, tokens_bound=0, now=self.clock())).done(0)
        return caller


def file_routes(needed: FileRoutes) -> APIRouter:
    routes = APIRouter(prefix="/openai/v1", tags=["openai"], dependencies=[BEARER])
    files = needed.files

    @routes.post("/files", **_upload_documented())
    async def upload_file(request: Request) -> Response:
        """A file of JSON lines for `batches`: a form with `file` and `purpose: batch`, streamed to disk."""
        caller = await needed.caller(request)
        form = FormReader(request.headers.get("content-type"))
        size = _declared_size(request, files.terms.max_bytes)
        try:
            stored = await files.upload(caller, form, _body(request, needed.authenticate), size)
        except ClientDisconnect:
            logger.info("request %s: the client left during its upload", request.state.request_id)
            return Response(status_code=400)
        return answer(file_object(stored))

    @routes.get("/files", **_documented("files/list", 400, 404))
    async def list_files(request: Request) -> Response:
        """The project's files, the newest first: `after`, `limit`, `order`, `purpose`."""
        caller = await needed.caller(request)
        page = _page(request)
        return answer(listing([file_object(one) for one in await files.listed(caller, page)], page.limit))

    @routes.get("/files/{file_id}", **_documented("files/retrieve", 404, path_parameters=FILE_ID))
    async def retrieve_file(request: Request) -> Response:
        """A file, without its content; 404 for another project's."""
        caller = await needed.caller(request)
        return answer(file_object(await files.find(caller, request.path_params["file_id"])))

    @routes.get(
        "/files/{file_id}/content", **_documented("files/retrieve-contents", 404, path_parameters=FILE_ID)
    )
    async def read_file(request: Request) -> Response:
        """The content of a file, as it was uploaded or written."""
        caller = await needed.caller(request)
        stored = await files.find(caller, request.path_params["file_id"])
        return FileReply(request.state.request_id, await files.open(stored), stored.size)

    @routes.delete("/files/{file_id}", **_documented("files/delete", 404, 409, path_parameters=FILE_ID))
    async def delete_file(request: Request) -> Response:
        """Delete a file; 409 while a batch that has not ended reads it."""
        caller = await needed.caller(request)
        file_id = request.path_params["file_id"]
        await files.delete(caller, file_id)
        return answer({"id": file_id, "object": "file", "deleted": True})

    return routes


class FileReply(WorkingReply):
    """A file's content, sent while it is read."""

    def __init__(self, request_id: str, file: BinaryIO, size: int) -> None:
        super().__init__(request_id, logger)
        self._file = file
        self._size = size

    async def work(self, send: Send, client: Client) -> Response | None:
        stream = StreamedResponse(send, "application/octet-stream")
        async with aclosing(pieces_of(self._file, self._size)) as pieces:  # type: ignore[type-var]
            await stream.start({"content-length": str(self._size)})
            try:
                async for piece in pieces:
                    await stream.send(piece)
            except StorageUnavailable as error:
                # The reply stays incomplete and the connection is closed, so that no client takes it for the whole.
                logger.error("request %s: the rest of a file cannot be read: %s", self.request_id, error)
                return None
            await stream.end(b"")
        return None


def file_object(file: StoredFile) -> dict[str, Any]:
    """OpenAI's file object."""
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.size,
        "created_at": int(file.created_at),
        "expires_at": int(file.expires_at),
        "filename": file.filename,
        "purpose": file.purpose,
        "status": "processed",
        "status_details": None,
    }


def listing(objects: list[dict[str, Any]], limit: int) -> dict[str, Any]:
    """OpenAI's list of the first `limit` objects."""
    data = objects[:limit]
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": len(objects) > limit,
    }


def answer(body: Any) -> Response:
    return Response(orjson.dumps(body), media_type="application/json")


def _page(request: Request) -> FilePage:
    asked = request.query_params
    return FilePage(
        limit=limit_of(asked, default=MOST_LISTED, most=MOST_LISTED),
        after=asked.get("after"),
        oldest_first=one_of(asked, "order", ("desc", "asc")) == "asc",
        purpose=asked.get("purpose"),
    )


def _declared_size(request: Request, max_bytes: int) -> int:
    """What is set aside for the upload. Raises `InvalidBody` before a byte of one that is too large is read."""
    declared = request.headers.get("content-length")
    if declared is None:
        return max_bytes
    size = whole_number(declared)
    if size is None or size > max_bytes + FORM_BYTES:
        raise too_large(max_bytes)
    return size


async def _body(request: Request, authenticate: Authenticate) -> Any:
    """The body as it comes. A key that was revoked meanwhile is refused at its end."""
    async for chunk in request.stream():
        yield chunk
    refuse_oversized_body(request)
    await authenticate(request)


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


def batch_routes(batches: Batches, needed: FileRoutes) -> APIRouter:
    """Callers are counted as those of files are."""
    routes = APIRouter(prefix="/openai/v1", tags=["openai"], dependencies=[BEARER])

    @routes.post("/batches", **_documented("batch/create", 400, 404, 413, body=BatchRequest))
    async def create_batch(request: Request) -> Response:
        """Run the requests of a file when there is room for them, at a part of their price."""
        await needed.caller(request)
        caller, asked = await authenticated_request(request, needed.authenticate, BatchRequest)
        return answer(batch_object(await batches.make(caller, asked)))

    @routes.get("/batches", **_documented("batch/list", 400, 404))
    async def list_batches(request: Request) -> Response:
        """The project's batches, the newest first: `after`, `limit`."""
        caller, query = await needed.caller(request), request.query_params
        limit = limit_of(query, default=BATCHES_LISTED, most=MOST_BATCHES)
        found = await batches.listed(caller, limit=limit, after=query.get("after"))
        return answer(listing([batch_object(one) for one in found], limit))

    @routes.get("/batches/{batch_id}", **_documented("batch/retrieve", 404, path_parameters=BATCH_ID))
    async def retrieve_batch(request: Request) -> Response:
        """A batch, with how far it is; 404 for another project's."""
        caller = await needed.caller(request)
        return answer(batch_object(await batches.find(caller, request.path_params["batch_id"])))

    @routes.post(
        "/batches/{batch_id}/cancel", **_documented("batch/cancel", 404, 409, path_parameters=BATCH_ID)
    )
    async def cancel_batch(request: Request) -> Response:
        """Run no more of its requests. What has run is in its files."""
        caller = await needed.caller(request)
        return answer(batch_object(await batches.cancel(caller, request.path_params["batch_id"])))

    return routes
