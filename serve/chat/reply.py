"""Sends one chat completion, as JSON or as server-sent events, and stops the work when its client has gone."""

import logging
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import orjson
from starlette.responses import Response
from starlette.types import Send

from billing.caller import Caller
from billing.errors import BillingError
from billing.store.database import Work
from models.engine import EngineChunk, EngineRequest
from models.errors import EngineError, EngineFailed
from serve.chat.engine_reply import EngineReply
from serve.chat.service import ChatService, PreparedChat
from serve.http.errors import Problem, problem_of, unexpected_problem
from serve.http.replies import EVENTS, Client, StreamedResponse, WorkingReply
from serve.money.held_request import MOST_RECORDED_BYTES, Receipt, Record

DONE = b"data: [DONE]\n\n"
# How ids of a form begin, and what a piece of its stream is called.
_NAMES = {"chat": ("chatcmpl", "chat.completion.chunk"), "completion": ("cmpl", "text_completion")}
_CREATED = re.compile(rb'"created":\s*(\d+)')


def completed_reply(reply: dict[str, Any], charged: Mapping[str, Any]) -> bytes:
    """The whole JSON reply."""
    return orjson.dumps({**reply, **charged})


def final_events(charged: Mapping[str, Any], request: EngineRequest, first_event: bytes) -> bytes:
    """The usage event and the terminator of a stream."""
    return usage_event(charged, request, first_event) + DONE


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
    return _event(chunk)


def error_event(problem: Problem, charged: Mapping[str, Any]) -> bytes:
    """The last event of a stream that broke: what went wrong, and what was charged for what had been delivered."""
    return _event({**problem.body(), **charged})


def _event(fields: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(fields) + b"\n\n"


@dataclass(frozen=True, slots=True)
class EndedStream:
    """A stream whose pieces were sent, but for those that were held back: its closing events."""

    request: EngineRequest
    first_event: bytes
    held_back: bytes


class ReplyForm(Protocol):
    """`charged` has the contract's `usage` and `service` of what was settled."""

    @property
    def holds_back_last(self) -> bool:
        """Whether the engine's last piece of a stream tells its usage, and waits for the settlement."""

    def checked(self, data: bytes) -> dict[str, Any]:
        """The engine's reply in one piece. Raises `EngineFailed` for bytes that are none."""

    def completed(self, reply: dict[str, Any], charged: Mapping[str, Any]) -> bytes:
        """The reply in one piece, as the caller gets it."""

    def closing(self, stream: EndedStream, charged: Mapping[str, Any]) -> bytes:
        """What ends a stream."""

    def error(self, problem: Problem, charged: Mapping[str, Any], request: EngineRequest) -> bytes:
        """What ends a stream that broke. `charged` is empty where nothing was."""


class ContractForm:
    """Chat completions as the contract has them: usage and billing in the last event, whatever was asked."""

    holds_back_last = False

    def checked(self, data: bytes) -> dict[str, Any]:
        return checked_object(data, listed="choices")

    def completed(self, reply: dict[str, Any], charged: Mapping[str, Any]) -> bytes:
        return completed_reply(reply, charged)

    def closing(self, stream: EndedStream, charged: Mapping[str, Any]) -> bytes:
        return final_events(charged, stream.request, stream.first_event)

    def error(self, problem: Problem, charged: Mapping[str, Any], request: EngineRequest) -> bytes:
        return error_event(problem, charged)


CONTRACT = ContractForm()


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


class ChatReply(WorkingReply):
    """The request is admitted, held, generated and settled while this is sent."""

    def __init__(
        self,
        service: ChatService,
        caller: Caller,
        chat: PreparedChat,
        request_id: str,
        form: ReplyForm = CONTRACT,
    ) -> None:
        super().__init__(request_id, logger)
        self._service = service
        self._caller = caller
        self._chat = chat
        self._form = form
        # Of a reply in one piece: what is written with its settlement.
        self.record: Record | None = None

    async def work(self, send: Send, client: Client) -> Response | None:
        if not self._chat.request.stream:
            return await self._complete(client)
        await self._send_events(StreamedResponse(send, EVENTS), client)
        return None

    async def _complete(self, client: Client) -> Response:
        if self.record is not None:
            self._chat = self._chat.kept_within(MOST_RECORDED_BYTES)
        async with self._service.open(self._caller, self._chat, self.request_id, client) as answer:
            data = b""
            async with aclosing(answer.chunks()) as chunks:
                async for chunk in chunks:
                    data = chunk.data or data
            reply = self._form.checked(data)
            if self.record is not None:
                answer.held.also_write = partial(self._recorded, self.record, answer, reply)
            receipt = await answer.settle()
        await self.settled(data)
        headers = answer.headers(receipt.settlement.status)
        body = self._form.completed(reply, answer.charged(receipt))
        return Response(body, headers=headers, media_type="application/json")

    def _recorded(
        self, record: Record, answer: EngineReply, reply: dict[str, Any], receipt: Receipt
    ) -> Work[None]:
        return record([self._form.completed(reply, answer.charged(receipt))], receipt)

    async def _send_events(self, stream: StreamedResponse, client: Client) -> None:
        answer: EngineReply | None = None
        try:
            async with self._service.open(self._caller, self._chat, self.request_id, client) as answer:
                async with aclosing(answer.chunks()) as chunks:
                    ended = await self.forward(chunks, answer, stream)
                receipt = await answer.settle()
            await self.settled(ended.held_back)
            await stream.end(self._form.closing(ended, answer.charged(receipt)))
        except Exception as error:
            if not stream.started:
                raise
            # What the stream was charged is known by now, where it was.
            settled = answer.held.receipt if answer is not None else None
            charged = answer.charged(settled) if answer is not None and settled is not None else {}
            await stream.end(self._form.error(self._problem(error), charged, self._chat.request))

    async def settled(self, data: bytes) -> None:
        """What there is to do before the end of a settled reply is sent; `data` is the engine's last. A dialect's."""

    async def forward(
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
            await stream.send(chunk.data)
        if not stream.started:
            raise EngineFailed("the engine's stream ended without an event")
        return EndedStream(self._chat.request, first_event, held_back)

    def _problem(self, error: Exception) -> Problem:
        if isinstance(error, (EngineError, BillingError)):
            return problem_of(error)
        logger.error("request %s failed unexpectedly after its first event", self.request_id, exc_info=error)
        return unexpected_problem()
