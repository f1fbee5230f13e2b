"""Sends one chat completion, as JSON or as server-sent events, and stops the work when its client has gone."""

import logging
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import orjson
from starlette.responses import Response
from starlette.types import Send

from billing.caller import Caller
from billing.errors import BillingError
from models.engine import EngineChunk, EngineRequest
from models.errors import EngineError, EngineFailed, EngineRejected, InvalidField, UnsupportedOption
from serve.chat.landing import open_or_land
from serve.chat.request import PreparedChat
from serve.chat.service import ChatService, EngineReply
from serve.http.errors import Problem, problem_of, unexpected_problem
from serve.http.replies import EVENTS, Client, StreamedResponse
from serve.money.admission import Admitted, ChargedReply
from serve.money.held_request import Receipt

DONE = b"data: [DONE]\n\n"
# How ids of a form begin, and what a piece of its stream is called.
_NAMES = {"chat": ("chatcmpl", "chat.completion.chunk"), "completion": ("cmpl", "text_completion")}
_CREATED = re.compile(rb'"created":\s*(\d+)')


def usage_event(charged: Mapping[str, Any], request: EngineRequest, first_event: bytes) -> bytes:
    """The usage of a stream, with the id and time that its chunks carry."""
    created = _CREATED.search(first_event)
    prefix, kind = _NAMES[request.form]
    chunk = {
        "id": f"{prefix}-{request.request_id}",
        "object": kind,
        "created": int(created[1]) if created else int(time.time()),
        "model": request.model_id,
        "choices": [],
        **charged,
    }
    return event(chunk)


def event(fields: Mapping[str, Any]) -> bytes:
    """A server-sent event with this data."""
    return b"data: " + orjson.dumps(fields) + b"\n\n"


@dataclass(frozen=True, slots=True)
class EndedStream:
    """A stream whose pieces were sent, but for those that were held back: its closing events."""

    request: EngineRequest
    first_event: bytes
    held_back: bytes


class ReplyForm:
    """The form in which a reply is written around what the engine said: the contract's here, with usage and billing in
    the last event, and what a dialect does otherwise where it is spoken.

    `charged` has the contract's `usage` and `service` of what was settled, and is empty where nothing was.
    """

    # True: the engine's last piece of a stream tells its usage, and waits for the settlement.
    holds_back_last = False

    def renamed(self, error: Exception) -> Exception:
        """An error of the chat in the terms of the caller's own body."""
        return error

    def checked(self, data: bytes) -> dict[str, Any]:
        """The engine's reply in one piece. Raises `EngineFailed` for bytes that are none."""
        return checked_object(data, listed="choices")

    def completed(self, reply: dict[str, Any], charged: Mapping[str, Any]) -> bytes:
        """The reply in one piece, as the caller gets it."""
        return orjson.dumps({**reply, **charged})

    async def settled(self, data: bytes, *, stream: bool) -> None:
        """Called before the end of a settled reply is sent; `data` is the engine's last."""

    def closing(self, stream: EndedStream, charged: Mapping[str, Any]) -> bytes:
        """The end of a stream."""
        return usage_event(charged, stream.request, stream.first_event) + DONE

    def error(
        self, problem: Problem, charged: Mapping[str, Any], request: EngineRequest, last_piece: bytes
    ) -> bytes:
        """The end of a stream that broke after this piece: what went wrong, and what was charged for what had been
        delivered."""
        return event({**problem.body(), **charged})


CONTRACT = ReplyForm()


def checked_object(data: bytes, *, listed: str) -> dict[str, Any]:
    """A reply that is a JSON object with a list of that name that is not empty. Raises `EngineFailed` for others."""
    try:
        reply = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise EngineFailed("the engine's reply is not JSON") from error
    if not isinstance(reply, dict) or not isinstance(reply.get(listed), list) or not reply[listed]:
        raise EngineFailed("the engine's reply is not a chat completion")
    return reply


logger = logging.getLogger("pith.chat")


class ChatReply(ChargedReply):
    """The chat is compressed where that was asked for, held, generated and settled while this is sent."""

    def __init__(
        self,
        service: ChatService,
        caller: Caller,
        chat: PreparedChat,
        request_id: str,
        form: ReplyForm = CONTRACT,
    ) -> None:
        terms = [service.terms(chat)]
        payer = service.at_tier(caller, chat)
        super().__init__(service.admissions, payer, request_id, chat.route, terms, logger)
        self._service = service
        self._chat = chat
        self._form = form
        # What was sent last of a stream.
        self._last_piece = b""

    async def work(self, send: Send, client: Client) -> Response | None:
        try:
            if not self._chat.request.stream:
                return await super().work(send, client)
            await self._send_events(StreamedResponse(send, EVENTS), client)
            return None
        except (EngineRejected, InvalidField, UnsupportedOption) as error:
            renamed = self._form.renamed(error)
            if renamed is error:
                raise
            raise renamed from error

    async def answer(self, admitted: Admitted, client: Client) -> Response:
        async with open_or_land(self._service, self._chat, admitted, client) as answer:
            data = b""
            async with aclosing(answer.chunks()) as chunks:
                async for chunk in chunks:
                    data = chunk.data or data
            reply = self._form.checked(data)

            def written(receipt: Receipt) -> bytes:
                return self._form.completed(reply, answer.charged(receipt))

            receipt = await answer.settle(self.also_write(lambda receipt: [written(receipt)]))
        await self._form.settled(data, stream=False)
        headers = answer.headers(receipt.settlement.status)
        return Response(written(receipt), headers=headers, media_type="application/json")

    async def _send_events(self, stream: StreamedResponse, client: Client) -> None:
        answer: EngineReply | None = None
        try:
            async with (
                self.admitted() as admitted,
                open_or_land(self._service, self._chat, admitted, client) as answer,
            ):
                async with aclosing(answer.chunks()) as chunks:
                    ended = await self._forward(chunks, answer, stream)
                receipt = await answer.settle()
            await self._form.settled(ended.held_back, stream=True)
            await stream.end(self._form.closing(ended, answer.charged(receipt)))
        except Exception as error:
            if not stream.started:
                raise
            # What the stream was charged is known by now, where it was.
            settled = answer.held.receipt if answer is not None else None
            charged = answer.charged(settled) if answer is not None and settled is not None else {}
            problem, request = self._problem(error), answer.request if answer else self._chat.request
            await stream.end(self._form.error(problem, charged, request, self._last_piece))

    async def _forward(
        self, chunks: AsyncIterator[EngineChunk], answer: EngineReply, stream: StreamedResponse
    ) -> EndedStream:
        """Once all was sent that is not held back."""
        first_event = held_back = b""
        async for chunk in chunks:
            if chunk.finished and self._form.holds_back_last:
                held_back = chunk.data
                break
            if not chunk.data:
                continue
            if not stream.started:
                first_event = chunk.data
                answer.begin_delivery(chunk)
                await stream.start(answer.headers(answer.held.hold.status))
            else:
                answer.observed.go_on(chunk.usage.completion_tokens)
            self._last_piece = chunk.data
            await stream.send(chunk.data)
        if not stream.started:
            raise EngineFailed("the engine's stream ended without an event")
        return EndedStream(answer.request, first_event, held_back)

    def _problem(self, error: Exception) -> Problem:
        if isinstance(error, (EngineError, BillingError)):
            return problem_of(error)
        logger.error("request %s failed unexpectedly after its first event", self.request_id, exc_info=error)
        return unexpected_problem()
