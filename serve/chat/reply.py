"""Sends one chat completion, as JSON or as server-sent events, and stops the work when its client has gone."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from billing.caller import Caller
from billing.errors import BillingError
from models.engine import EngineChunk
from models.errors import EngineError, EngineFailed
from serve.chat.events import checked_reply, completed_reply, error_event, final_events
from serve.chat.service import ChatService, PreparedChat
from serve.http.disconnect import Client, ClientGone, cancelled_when_client_leaves
from serve.http.errors import problem_of, unexpected_problem
from serve.http.rate_limit_headers import rate_limit_headers
from serve.money.exchange import METERING_HEADER, Exchange, Receipt

logger = logging.getLogger("pith.chat")


class ChatReply(Response):
    """A response that does its work while it is sent, so that it hears its client leave."""

    def __init__(self, service: ChatService, caller: Caller, chat: PreparedChat, request_id: str) -> None:
        super().__init__()
        self._service = service
        self._caller = caller
        self._chat = chat
        self._request_id = request_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises domain errors only before anything was sent."""
        try:
            async with cancelled_when_client_leaves(receive) as client:
                if self._chat.request.stream:
                    await self._send_events(send, client)
                    return
                response = await self._complete(client)
            await response(scope, receive, send)
        except ClientGone:
            logger.info("request %s: the client left", self._request_id)

    async def _complete(self, client: Client) -> Response:
        async with self._service.open(self._caller, self._chat, self._request_id) as exchange:
            exchange.client = client
            data = b""
            async with aclosing(exchange.chunks()) as chunks:
                async for chunk in chunks:
                    data = chunk.data or data
            reply = checked_reply(data)
            receipt = await exchange.settle("completed")
        headers = self._reply_headers(exchange, receipt.settlement.status)
        return Response(completed_reply(reply, receipt), headers=headers, media_type="application/json")

    async def _send_events(self, send: Send, client: Client) -> None:
        stream = _EventStream(send)
        exchange: Exchange | None = None
        try:
            async with self._service.open(self._caller, self._chat, self._request_id) as exchange:
                exchange.client = client
                async with aclosing(exchange.chunks()) as chunks:
                    await self._forward(chunks, exchange, stream)
                receipt = await exchange.settle("completed")
            chat = self._chat.request
            await stream.end(
                final_events(
                    receipt,
                    completion_id=chat.request_id,
                    model_id=chat.model_id,
                    first_event=stream.first_event,
                )
            )
        except (EngineError, BillingError) as error:
            if not stream.started:
                raise
            await stream.end(error_event(problem_of(error), _receipt_of(exchange)))
        except Exception:
            if not stream.started:
                raise
            logger.exception("request %s failed unexpectedly after its first event", self._request_id)
            await stream.end(error_event(unexpected_problem(), _receipt_of(exchange)))

    async def _forward(
        self, chunks: AsyncIterator[EngineChunk], exchange: Exchange, stream: _EventStream
    ) -> None:
        async for chunk in chunks:
            if not chunk.data:
                continue
            if not stream.started:
                if not chunk.data.startswith(b"data: {"):
                    raise EngineFailed("the engine's stream is no server-sent chat completion")
                exchange.begin_delivery()
                await stream.start(self._reply_headers(exchange, exchange.hold.status))
            await stream.send(chunk.data)
        if not stream.started:
            raise EngineFailed("the engine's stream ended without an event")

    def _reply_headers(self, exchange: Exchange, status: str) -> dict[str, str]:
        return {METERING_HEADER: status, **rate_limit_headers(exchange.limits)}


def _receipt_of(exchange: Exchange | None) -> Receipt | None:
    """What a broken stream was charged, where that is known by now."""
    return exchange.receipt if exchange is not None else None


class _EventStream:
    """A `text/event-stream` response, started at the first event so that an earlier error has its own status."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False
        self.first_event = b""

    async def start(self, headers: dict[str, str]) -> None:
        fields = {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-store",
            "x-accel-buffering": "no",
            **headers,
        }
        raw = [(name.lower().encode(), value.encode()) for name, value in fields.items()]
        await self._send({"type": "http.response.start", "status": 200, "headers": raw})
        self.started = True

    async def send(self, data: bytes) -> None:
        self.first_event = self.first_event or data
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": False})
