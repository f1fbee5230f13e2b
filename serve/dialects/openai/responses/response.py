"""`/openai/v1/responses`: OpenAI's Responses API, on the chat's limits, holds and bills."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from billing.caller import Caller
from billing.rate_limits.rate_limits import RateLimits
from models.engine import EngineRequest
from models.errors import EngineFailed, InvalidField, UnsupportedOption
from serve.chat.reply import ChatReply, EndedStream, ReplyForm
from serve.chat.request import PreparedChat
from serve.chat.service import ChatService
from serve.dialects.documentation import GENERATING, OpenAIResponse, openai_operation
from serve.dialects.openai.responses.conversation import Places
from serve.dialects.openai.responses.request import (
    AskedResponse,
    ResponseRequest,
    asked_response,
    without_tools,
)
from serve.dialects.openai.responses.stored_responses import PlacedItem, StoredResponses, refers
from serve.http.auth import Authenticate, authenticated_request
from serve.http.error_dialects import openai_body, openai_problem
from serve.http.errors import Problem
from serve.http.openapi import BEARER
from serve.http.replies import PlainRoute
from serve.money.admission import MOST_RECORDED_BYTES

# Keeps a response; whether that was done.
Keep = Callable[[Mapping[str, Any]], Awaitable[bool]]

_DATA = b"\ndata: "
_NUMBER = re.compile(rb'"sequence_number":\s*(\d{1,9})')


class ResponseReplyForm(ReplyForm):
    """One response, which has `service` beside its usage. `places` says where in the body a thing of the chat stands.
    The response is kept where there is a `keep`."""

    holds_back_last = True

    def __init__(self, form_options: Mapping[str, Any], places: Places, keep: Keep | None = None) -> None:
        self._repeated = form_options["response"]
        self._places = places
        self._keep = keep
        self.is_stored = False

    def renamed(self, error: Exception) -> Exception:
        return self._places.renamed(error)

    async def settled(self, data: bytes, *, stream: bool) -> None:
        """Keep the response. One that cannot be kept says so, and fails nothing."""
        if self._keep is not None:
            self.is_stored = await self._keep(_last_event(data)["response"] if stream else _checked(data))

    def checked(self, data: bytes) -> dict[str, Any]:
        return _checked(data)

    def completed(self, reply: dict[str, Any], charged: Mapping[str, Any]) -> bytes:
        return orjson.dumps(self._charged(reply, charged))

    def closing(self, stream: EndedStream, charged: Mapping[str, Any]) -> bytes:
        event = _last_event(stream.held_back)
        return _written({**event, "response": self._charged(event["response"], charged)})

    def error(
        self, problem: Problem, charged: Mapping[str, Any], request: EngineRequest, last_piece: bytes
    ) -> bytes:
        """An `error` event, which SDKs raise, and `response.failed`, which agents wait for."""
        problem = openai_problem(problem)
        error = openai_body(problem)["error"]
        number = _next_number(last_piece)
        told = {"type": "error", "sequence_number": number, "code": error["code"]}
        told |= {"message": error["message"], "param": error["param"], "error": error}
        failed = self._charged(self._failed(problem, request), charged)
        closing = {"type": "response.failed", "sequence_number": number + 1, "response": failed}
        return _written(told) + _written(closing)

    def _charged(self, response: Mapping[str, Any], charged: Mapping[str, Any]) -> dict[str, Any]:
        """The response with what was settled; of what was generated, the engine alone tells what was reasoning."""
        if not charged:
            return dict(response)
        usage = charged["usage"]
        details = (response.get("usage") or {}).get("output_tokens_details") or {"reasoning_tokens": 0}
        told = {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {**usage["prompt_tokens_details"], "cache_write_tokens": 0},
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": details,
            "total_tokens": usage["total_tokens"],
        }
        service = self._located(charged["service"])
        return {**response, "store": self.is_stored, "usage": told, "service": service}

    def _located(self, service: Mapping[str, Any]) -> Mapping[str, Any]:
        """With the item of the input that a compressed block is in, instead of the message that it became."""
        compression = service.get("compression", {})
        if "blocks" not in compression:
            return service
        blocks = [self._block(block) for block in compression["blocks"]]
        return {**service, "compression": {**compression, "blocks": blocks}}

    def _block(self, block: Mapping[str, Any]) -> dict[str, Any]:
        loc = self._places.found(("messages", block["message"]))
        item = loc[1] if loc[0] == "input" and len(loc) > 1 else None
        return {"item": item, **{name: value for name, value in block.items() if name != "message"}}

    def _failed(self, problem: Problem, request: EngineRequest) -> dict[str, Any]:
        code = "rate_limit_exceeded" if problem.status == 429 else "server_error"
        return {
            "id": f"resp_{request.request_id}",
            "object": "response",
            "created_at": int(time.time()),
            "model": request.model_id,
            "output": [],
            **self._repeated,
            "status": "failed",
            "store": False,
            "error": {"code": code, "message": problem.message},
            "incomplete_details": None,
            "usage": None,
        }


def _checked(data: bytes) -> dict[str, Any]:
    try:
        reply = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise EngineFailed("the engine's reply is not JSON") from error
    if not isinstance(reply, dict) or reply.get("object") != "response":
        raise EngineFailed("the engine's reply is not a response")
    return reply


def _next_number(piece: bytes) -> int:
    """The number of the event after a piece of the stream. Within a text the quotes of the name are escaped."""
    numbers = _NUMBER.findall(piece)
    return int(numbers[-1]) + 1 if numbers else 0


def _last_event(piece: bytes) -> dict[str, Any]:
    """The data of the last of some server-sent events. Raises `EngineFailed` where there is none."""
    try:
        event = orjson.loads(piece[piece.rindex(_DATA) + len(_DATA) :])
    except ValueError as error:
        raise EngineFailed("the engine did not end its stream of events") from error
    if not isinstance(event, dict):
        raise EngineFailed("the engine's event is not an object")
    return event


def _written(event: Mapping[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (event["type"].encode(), orjson.dumps(event))


@dataclass(frozen=True, slots=True)
class ResponseRoutes:
    """The route's collaborators. Without `stored` no response is kept."""

    chat: ChatService
    limiter: RateLimits
    clock: Callable[[], datetime]
    stored: StoredResponses | None = None

    async def items(self, caller: Caller, body: ResponseRequest) -> list[PlacedItem]:
        """The conversation, with what is stored of it. Reading that counts against a limit of its own."""
        items, previous = body.items(), body.previous_response_id
        if self.stored is None or not refers(items, previous):
            return placed_items(body)
        admission = await self.limiter.admit(
            caller.counted_apart("responses"), tokens_bound=0, now=self.clock()
        )
        try:
            return await self.stored.expanded(caller, items, previous)
        finally:
            await admission.done(0)

    def keep(self, caller: Caller, body: ResponseRequest, items: Sequence[PlacedItem]) -> Keep | None:
        """OpenAI keeps a response unless it is told not to."""
        if self.stored is None or self.stored.store_s == 0 or body.store is False:
            return None
        return partial(self.stored.keep, caller, [each.item for each in items])


def openai_response_routes(needed: ResponseRoutes, authenticate: Authenticate) -> APIRouter:
    """The route; what it does is `ChatService`'s."""
    routes = APIRouter(prefix="/openai/v1", tags=["openai"], dependencies=[BEARER], route_class=PlainRoute)

    @routes.post(
        "/responses",
        **openai_operation("responses/create", *GENERATING, 503, body=ResponseRequest, reply=OpenAIResponse),
    )
    async def create_response(request: Request) -> Response:
        """A response in OpenAI's form. It is kept for a while unless `store` is false, and can be referred to."""
        caller, body = await authenticated_request(request, authenticate, ResponseRequest)
        items = await needed.items(caller, body)
        keep = needed.keep(caller, body, items)
        asked = asked_response(body, items, is_stored=keep is not None)
        chat = _prepared(needed.chat, caller, asked)
        return _reply(needed.chat, caller, chat, asked, request.state.request_id, keep)

    return routes


def response_reply(service: ChatService, caller: Caller, body: ResponseRequest, request_id: str) -> ChatReply:
    """One of a batch, that neither is kept nor refers to any. Raises what `ChatService.prepare` raises, in the words of
    the request."""
    asked = asked_response(body, placed_items(body), is_stored=False)
    chat = _prepared(service, caller, asked, most_bytes=MOST_RECORDED_BYTES)
    return _reply(service, caller, chat, asked, request_id)


def placed_items(body: ResponseRequest) -> list[PlacedItem]:
    """The items of a body that refers to nothing. Raises `InvalidField` for one that does."""
    if body.previous_response_id is not None:
        message = "no response of this id is stored; send the whole conversation as input"
        raise InvalidField(("previous_response_id",), message, kind="not_stored")
    if isinstance(body.input, str):
        return [PlacedItem(item, ("input",)) for item in body.items()]
    return [PlacedItem(item, ("input", at)) for at, item in enumerate(body.input)]


def _reply(
    service: ChatService,
    caller: Caller,
    chat: PreparedChat,
    asked: AskedResponse,
    request_id: str,
    keep: Keep | None = None,
) -> ChatReply:
    form = ResponseReplyForm(chat.request.form_options, asked.places, keep)
    return ChatReply(service, caller, chat, request_id, form)


def _prepared(
    service: ChatService, caller: Caller, asked: AskedResponse, *, most_bytes: int | None = None
) -> PreparedChat:
    try:
        chat = service.prepare(caller, asked.chat, most_bytes=most_bytes)
    except (InvalidField, UnsupportedOption) as error:
        raise asked.places.renamed(error) from error
    if asked.chat.options.get("tools") and "tools" not in chat.request.options:
        options = without_tools(asked.chat.form_options)
        chat = replace(chat, request=replace(chat.request, form_options=options))
    return chat
