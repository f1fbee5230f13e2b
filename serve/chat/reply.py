"""Sends one chat completion, as JSON or as server-sent events, and stops the work when its client has gone."""

import logging
from collections.abc import AsyncIterator
from contextlib import aclosing
from functools import partial
from typing import Any

from starlette.responses import Response
from starlette.types import Send

from billing.caller import Caller
from billing.errors import BillingError
from billing.store.database import Work
from models.engine import EngineChunk
from models.errors import EngineError, EngineFailed
from serve.chat.engine_reply import EngineReply
from serve.chat.reply_form import CONTRACT, EndedStream, ReplyForm
from serve.chat.service import ChatService, PreparedChat
from serve.http.errors import Problem, problem_of, unexpected_problem
from serve.http.replies import EVENTS, Client, StreamedResponse, WorkingReply
from serve.money.held_request import Receipt
from serve.money.recorded import MOST_RECORDED_BYTES, Record

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
