"""`/openai/v1/responses`: OpenAI's Responses API, on the chat's limits, holds and bills."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from fastapi import APIRouter, Request
from starlette.responses import Response

from billing.caller import Caller
from billing.rate_limits.rate_limits import RateLimits
from models.errors import InvalidField, UnsupportedOption
from serve.chat.service import ChatService, PreparedChat
from serve.dialects.documentation import GENERATING, openai_operation
from serve.dialects.openai.responses.asked_response import AskedResponse, asked_response, without_tools
from serve.dialects.openai.responses.response_body import ResponseRequest
from serve.dialects.openai.responses.response_reply import Keep, ResponseReply
from serve.dialects.openai.responses.stored_responses import PlacedItem, StoredResponses, refers
from serve.dialects.replies import OpenAIResponse
from serve.http.auth import Authenticate, authenticated_request
from serve.http.openapi import BEARER
from serve.http.request_id import fresh_id
from serve.http.routes import PlainRoute


@dataclass(frozen=True, slots=True)
class ResponseRoutes:
    """What the route needs. Without `stored` no response is kept."""

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
        return _reply(needed.chat, caller, body, items, request.state.request_id, keep)

    return routes


def response_reply(
    service: ChatService, caller: Caller, body: ResponseRequest, request_id: str
) -> ResponseReply:
    """One that neither is kept nor refers to any. Raises what `ChatService.prepare` raises, in the words of the
    request."""
    return _reply(service, caller, body, placed_items(body), request_id, None)


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
    body: ResponseRequest,
    items: Sequence[PlacedItem],
    request_id: str,
    keep: Keep | None,
) -> ResponseReply:
    asked = asked_response(body, items, is_stored=keep is not None)
    return ResponseReply(service, caller, _prepared(service, caller, asked), request_id, asked.places, keep)


def _prepared(service: ChatService, caller: Caller, asked: AskedResponse) -> PreparedChat:
    options = asked.form_options
    try:
        chat = service.prepare(caller, asked.chat, fresh_id(), form="response", form_options=options)
    except (InvalidField, UnsupportedOption) as error:
        raise asked.places.renamed(error) from error
    if asked.chat.tools and "tools" not in chat.request.options:
        chat = replace(chat, request=replace(chat.request, form_options=without_tools(options)))
    return chat
