"""Compression for a project, for anybody who tries it out, and in batches."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from models.errors import InvalidField
from serve.compress.batch import BatchReply
from serve.compress.demo import DEMO_MAX_VALUES, DemoLimits, DemoReply, demo_body, over_the_cap
from serve.compress.prompt import MessagesReply, MessagesService
from serve.compress.request import BatchCompressRequest, CompressMessagesRequest, CompressRequest
from serve.compress.response import BatchCompressResponse, CompressMessagesResponse, CompressResponse
from serve.compress.service import CompressReply, CompressService
from serve.http.auth import Authenticate, authenticated_json, authenticated_request
from serve.http.openapi import (
    BEARER,
    RATE_LIMIT_HEADERS,
    REQUEST_ID_HEADER,
    REQUEST_ID_PARAMETER,
    error_responses,
    json_body,
    metering_header,
)
from serve.http.replies import NDJSON, count_refusals
from serve.http.request_body import check_shape, parse_body
from serve.originals.originals import RETAIN_S_FIELD

_HEADERS = {**REQUEST_ID_HEADER, **RATE_LIMIT_HEADERS}
_METERING = metering_header(
    "Whether usage is recorded. Of lines, it tells of the project; their summary tells the rest."
)
_ERRORS = error_responses(401, 402, 403, 422, 429, 500, 502, 503)


@dataclass(frozen=True, slots=True)
class CompressRoutes:
    """The collaborators of the compression routes. `batch_concurrency` is how many items of one batch run at a time;
    `demo_deadline_s` bounds a demo's compression."""

    service: CompressService
    messages: MessagesService
    demo: DemoLimits
    demo_max_chars: int
    batch_concurrency: int
    demo_deadline_s: float


def compress_routes(found: CompressRoutes, authenticate: Authenticate) -> APIRouter:
    routes = APIRouter(tags=["compression"])

    @routes.post(
        "/v1/compress",
        response_model=CompressResponse | CompressMessagesResponse,
        responses={
            200: {"description": "The compression.", "headers": {**_HEADERS, **_METERING}},
            **_ERRORS,
        },
        openapi_extra={
            "requestBody": json_body("CompressRequest", "CompressMessagesRequest"),
            "parameters": [REQUEST_ID_PARAMETER],
        },
        dependencies=[BEARER],
    )
    async def create_compression(request: Request) -> Response:
        """The part of a context that matters to a query, within a ratio, with a receipt; charged to the project.

        `messages` without a `query` come back with their long parts compressed, each for what its place asks.
        """
        caller, body = await authenticated_json(request, authenticate)
        if _are_messages_alone(body):
            asked = check_shape(body, CompressMessagesRequest)
            messages = found.messages.prepare(caller, asked)
            return MessagesReply(found.messages, caller, messages, request.state.request_id)
        one = check_shape(body, CompressRequest)
        prepared = found.service.prepare(one.model, one)
        return CompressReply(found.service, caller, prepared, request.state.request_id)

    _add_demo(routes, found)
    _add_batch(routes, found, authenticate)
    return routes


def _are_messages_alone(body: Any) -> bool:
    """Messages with neither a query nor an input; null counts as absent."""
    if not isinstance(body, dict) or body.get("messages") is None:
        return False
    return body.get("query") is None and body.get("input") is None


def _add_demo(routes: APIRouter, found: CompressRoutes) -> None:
    @routes.post(
        "/v1/demo/compress",
        response_model=CompressResponse,
        responses={
            200: {"description": "The compression.", "headers": _HEADERS},
            **_demo_errors(found.demo_max_chars),
        },
        openapi_extra={"requestBody": json_body("CompressRequest")},
    )
    async def create_demo_compression(request: Request) -> Response:
        """The same without a key: a capped input, a few requests a minute, and free of charge."""
        address = request.client.host if request.client else None
        count_refusals(request, partial(found.demo.count, address))
        raw = await demo_body(request, found.demo_max_chars)
        body = parse_body(raw, request.headers.get("content-type"), CompressRequest, most=DEMO_MAX_VALUES)
        if len(body.context) > found.demo_max_chars:
            raise over_the_cap(("body", body.context_field), found.demo_max_chars)
        if body.compression is not None and body.compression.retain_s:
            raise InvalidField(
                RETAIN_S_FIELD, "the demo keeps no originals; with a key, POST /v1/compress does"
            )
        prepared = found.service.prepare(body.model, body)
        return DemoReply(
            found.service,
            found.demo,
            address,
            prepared,
            request.state.request_id,
            deadline_s=found.demo_deadline_s,
        )


def _add_batch(routes: APIRouter, found: CompressRoutes, authenticate: Authenticate) -> None:
    @routes.post(
        "/v1/batch/compress",
        response_model=BatchCompressResponse,
        responses={200: _BATCH_OK, **_ERRORS},
        openapi_extra={
            "requestBody": json_body("BatchCompressRequest"),
            "parameters": [REQUEST_ID_PARAMETER],
        },
        dependencies=[BEARER],
    )
    async def create_batch_compression(request: Request) -> Response:
        """Up to 256 compressions, each with its own result or error: as one object, or as lines when they finish."""
        caller, body = await authenticated_request(request, authenticate, BatchCompressRequest)
        return BatchReply(
            found.service,
            caller,
            body,
            request.state.request_id,
            concurrency=found.batch_concurrency,
            as_lines=_wants_lines(request.headers.get("accept")),
        )


_BATCH_OK: dict[str, Any] = {
    "description": f"A result for each item, in their order. With `Accept: {NDJSON}`, a line for each when it is "
    "done, and the summary on the last line.",
    "headers": {**_HEADERS, **_METERING},
    "content": {
        NDJSON: {
            "schema": {"type": "string"},
            "example": '{"id":"a","index":0,"status":"ok","object":"compression",…}\n'
            '{"object":"compression.summary","summary":{…}}\n',
        }
    },
}


def _demo_errors(max_chars: int) -> dict[int | str, dict[str, Any]]:
    errors = error_responses(422, 429, 500, 502, 503)
    errors[422]["description"] += f" The input may hold {max_chars:,} characters."
    errors[429]["description"] = "The demo's limit of this address, or of all addresses, is used up."
    return errors


def _wants_lines(accept: str | None) -> bool:
    kinds = (accept or "").split(",")
    return any(kind.partition(";")[0].strip().lower() == NDJSON for kind in kinds)
