"""Sends one chat completion, as JSON or as server-sent events, and stops the work when its client has gone."""

import logging
from collections.abc import AsyncIterator
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Send

from billing.caller import Caller
from billing.errors import BillingError
from models.engine import EngineChunk
from models.errors import EngineError, EngineFailed
from serve.chat.engine_reply import EngineReply, checked_reply
from serve.chat.final_events import completed_reply, error_event, final_events
from serve.chat.service import ChatService, PreparedChat
from serve.http.disconnect import Client, WorkingReply
from serve.http.errors import Problem, problem_of, unexpected_problem
from serve.http.streaming import EVENTS, StreamedResponse

logger = logging.getLogger("pith.chat")


class ChatReply(WorkingReply):
    """The request is admitted, held, generated and settled while this is sent."""

    def __init__(self, service: ChatService, caller: Caller, chat: PreparedChat, request_id: str) -> None:
        super().__init__(request_id, logger)
        self._service = service
        self._caller = caller
        self._chat = chat

    async def work(self, send: Send, client: Client) -> Response | None:
        if not self._chat.request.stream:
            return await self._complete(client)
        await self._send_events(StreamedResponse(send, EVENTS), client)
        return None

    async def _complete(self, client: Client) -> Response:
        async with self._service.open(self._caller, self._chat, self.request_id, client) as answer:
            data = b""
            async with aclosing(answer.chunks()) as chunks:
                async for chunk in chunks:
                    data = chunk.data or data
            reply = checked_reply(data)
            receipt = await answer.held.settle("completed")
        headers = answer.admitted.reply_headers(receipt.settlement.status)
        return Response(completed_reply(reply, receipt), headers=headers, media_type="application/json")

    async def _send_events(self, stream: StreamedResponse, client: Client) -> None:
        answer: EngineReply | None = None
        try:
            async with self._service.open(self._caller, self._chat, self.request_id, client) as answer:
                async with aclosing(answer.chunks()) as chunks:
                    first_event = await self._forward(chunks, answer, stream)
                receipt = await answer.held.settle("completed")
            await stream.end(final_events(receipt, self._chat.request, first_event))
        except Exception as error:
            if not stream.started:
                raise
            # What the stream was charged is known by now, where it was.
            charged = answer.held.receipt if answer is not None else None
            await stream.end(error_event(self._problem(error), charged))

    async def _forward(
        self, chunks: AsyncIterator[EngineChunk], answer: EngineReply, stream: StreamedResponse
    ) -> bytes:
        """The first event, once all were sent."""
        first_event = b""
        async for chunk in chunks:
            if not chunk.data:
                continue
            if not stream.started:
                first_event = chunk.data
                answer.begin_delivery(first_event)
                await stream.start(answer.admitted.reply_headers(answer.held.hold.status))
            await stream.send(chunk.data)
        if not stream.started:
            raise EngineFailed("the engine's stream ended without an event")
        return first_event

    def _problem(self, error: Exception) -> Problem:
        if isinstance(error, (EngineError, BillingError)):
            return problem_of(error)
        logger.error("request %s failed unexpectedly after its first event", self.request_id, exc_info=error)
        return unexpected_problem()
