"""`GET /v1/compress/{id}/original`: a slice of a retained original, or all of it."""

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import orjson
from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response
from starlette.types import Send

from billing.caller import Caller
from billing.errors import BillingError
from billing.rate_limits.rate_limits import RateLimits
from serve.http.auth import Authenticate
from serve.http.openapi import (
    BEARER,
    RATE_LIMIT_HEADERS,
    REQUEST_ID_HEADER,
    REQUEST_ID_PARAMETER,
    error_responses,
)
from serve.http.replies import Client, StreamedResponse, WorkingReply, rate_limit_headers
from serve.http.request_body import InvalidBody, Issue
from serve.originals.originals import ID, Originals, Slice

logger = logging.getLogger("pith.originals")

# A longer slice is sent in pieces of this size, one in memory at a time.
PIECE_CHARACTERS = 262_144
MOST_OFFSET = 2**53 - 1
_OFFSET = re.compile(r"[0-9]{1,16}")
_WORDS = {
    "start": "Offset of the first character. Characters are Unicode code points, counted from 0. Default: 0.",
    "end": "Offset after the last character. Default, and at the most: the end of the text.",
}


_EXAMPLE: dict[str, Any] = {
    "id": "cmp_5f0c1a",
    "object": "compression.original",
    "start": 30,
    "end": 64,
    "length": 98,
    "text": "The warranty ends after two years.",
}


class OriginalSlice(BaseModel):
    """A part of a text as it was before it was compressed. Offsets count characters, which are Unicode code points."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    id: str = Field(description="The id asked for: a compression's, or a block's.")
    object: Literal["compression.original"] = Field(description="`compression.original`.")
    start: int = Field(description="Offset of the first character of `text`.")
    end: int = Field(description="Offset after its last character.")
    length: int = Field(description="Characters of the whole original.")
    text: str = Field(description="The characters from `start` to before `end`.")


@dataclass(frozen=True, slots=True)
class OriginalsRoute:
    """The collaborators of the route."""

    originals: Originals
    limiter: RateLimits
    clock: Callable[[], datetime]


def original_routes(found: OriginalsRoute, authenticate: Authenticate) -> APIRouter:
    routes = APIRouter(tags=["compression"], dependencies=[BEARER])

    @routes.get(
        "/v1/compress/{id}/original",
        response_model=OriginalSlice,
        openapi_extra={"parameters": [*_PARAMETERS, REQUEST_ID_PARAMETER]},
        responses={
            200: {"description": "The slice.", "headers": {**REQUEST_ID_HEADER, **RATE_LIMIT_HEADERS}},
            **error_responses(401, 403, 404, 422, 429, 500, 503),
        },
    )
    async def read_original(request: Request) -> Response:
        """A text as it was before it was compressed with `compression.retain_s`, or a slice of it; free of charge. It
        is there until `retained_until`, for keys of the same project."""
        caller = await authenticate(request)
        start, end = _slice_asked(request)
        admission = await found.limiter.admit(
            caller.counted_apart("originals"), tokens_bound=0, now=found.clock()
        )
        try:
            reply = OriginalReply(found.originals, caller, request, start, end)
            await reply.begin()
        finally:
            await admission.done(0)
        reply.limit_headers = rate_limit_headers(admission.headers_state)
        return reply

    return routes


class OriginalReply(WorkingReply):
    """A slice as JSON. A long one is sent while it is read, so that its length costs no memory."""

    def __init__(
        self, originals: Originals, caller: Caller, request: Request, start: int, end: int | None
    ) -> None:
        super().__init__(request.state.request_id, logger)
        self._originals = originals
        self._caller = caller
        self._id = request.path_params["id"]
        self._start = start
        self._end = end
        self.limit_headers: dict[str, str] = {}

    async def begin(self) -> None:
        """Reads the first piece. Raises what `Originals.read` raises, and then nothing was sent."""
        self._first = await self._piece(self._start)
        if self._end is None or self._end > self._first.length:
            self._end = self._first.length

    async def work(self, send: Send, client: Client) -> Response | None:
        first, end = self._first, self._first.end if self._end is None else self._end
        if first.end >= end:
            body = orjson.dumps({**_head(first, first.end), "text": first.text})
            headers = {"cache-control": "no-store", **self.limit_headers}
            return Response(body, headers=headers, media_type="application/json")
        stream = StreamedResponse(send, "application/json")
        await stream.start(self.limit_headers)
        await stream.send(orjson.dumps(_head(first, end))[:-1] + b',"text":"' + _escaped(first.text))
        try:
            await self._send_rest(stream, first.end, end)
        except BillingError as error:
            # The reply stays incomplete and the connection is closed, so that no client takes it for the whole.
            logger.warning("request %s: the rest of an original cannot be read: %s", self.request_id, error)
        return None

    async def _send_rest(self, stream: StreamedResponse, at: int, end: int) -> None:
        while at < end:
            piece = await self._piece(at)
            await stream.send(_escaped(piece.text))
            at = piece.end
        await stream.end(b'"}')

    async def _piece(self, start: int) -> Slice:
        upto = start + PIECE_CHARACTERS
        return await self._originals.read(
            self._caller, self._id, start, upto if self._end is None else min(upto, self._end)
        )


def _head(found: Slice, end: int) -> dict[str, Any]:
    return {
        "id": found.id,
        "object": "compression.original",
        "start": found.start,
        "end": end,
        "length": found.length,
    }


def _escaped(text: str) -> bytes:
    """The text as the inside of a JSON string, without its quotation marks."""
    return orjson.dumps(text)[1:-1]


def _slice_asked(request: Request) -> tuple[int, int | None]:
    """Both offsets. Raises `InvalidBody`."""
    start, end = _offset(request, "start"), _offset(request, "end")
    if end is not None and end < (start or 0):
        raise InvalidBody(
            (Issue("greater_than_equal", ("query", "end"), "end must not be below start", end),)
        )
    return start or 0, end


def _offset(request: Request, name: str) -> int | None:
    given = request.query_params.get(name)
    if given is None:
        return None
    if not _OFFSET.fullmatch(given) or int(given) > MOST_OFFSET:
        message = f"{name} must be an integer from 0 to {MOST_OFFSET}"
        raise InvalidBody((Issue("int_parsing", ("query", name), message),))
    return int(given)


_PARAMETERS: list[dict[str, Any]] = [
    {
        "name": "id",
        "in": "path",
        "required": True,
        "description": "The id of a compression, or of a compressed part of a chat's prompt.",
        "schema": {"type": "string", "pattern": f"^{ID.pattern}$"},
    },
    *(
        {
            "name": name,
            "in": "query",
            "required": False,
            "description": words,
            "schema": {"type": "integer", "minimum": 0, "maximum": MOST_OFFSET},
        }
        for name, words in _WORDS.items()
    ),
]
