"""One connection that carries one request, told apart by how it ends: a whole reply, a refusal, or a broken connection.

A protocol of its own on httptools and not a client library: connections are opened first and written to together, which
no library does, and a reset is seen as what it is.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

from httptools import HttpParserError, HttpResponseParser

from benchmarks.load.exchange import DONE, ERROR, EXCERPT, TEXT, USAGE, Call, Failed, figures
from benchmarks.load.loop import Target

REFUSALS = (429, 503)
ANSWERS = (200, 402)


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one request. Without a whole reply `status` is 0; `fault` says what is wrong, and is "" where
    nothing is: a whole 200, a 402, or a 429 or 503 with `Retry-After`. Times count from when the request was sent."""

    status: int
    fault: str
    latency_ms: float
    ttft_ms: float | None = None
    retry_after_s: int | None = None

    @property
    def kind(self) -> str:
        """What it is counted as."""
        if not self.status:
            return self.fault.partition(":")[0]
        return f"{self.status}, {self.fault.partition(':')[0]}" if self.fault else str(self.status)


def request_bytes(target: Target, call: Call, body: bytes) -> bytes:
    head = [
        f"POST {call.path} HTTP/1.1",
        f"Host: {urlsplit(target.url).netloc}",
        *([f"Authorization: Bearer {target.key}"] if target.key else []),
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    return "\r\n".join([*head, "", ""]).encode() + body


class Connection(asyncio.Protocol):
    """Sends when it is told to; `done` is set with its `Answer`, whatever comes."""

    def __init__(self, call: Call) -> None:
        self.done: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._call = call
        self._parser = HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._sent_s = 0.0
        self._ttft_ms: float | None = None
        self._headers: dict[bytes, bytes] = {}
        self._body = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def send(self, request: bytes) -> None:
        self._sent_s = time.perf_counter()
        if self._transport is not None:
            self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            self.end("not HTTP", repr(error))

    def connection_lost(self, error: Exception | None) -> None:
        # A server that closes before the whole reply has let the request fall, with a reset or without.
        self.end(
            "reset" if isinstance(error, ConnectionError) else "closed",
            str(error or "before the whole reply"),
        )

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_body(self, piece: bytes) -> None:
        self._body += piece
        if self._ttft_ms is None and self._call.stream and TEXT.search(piece):
            self._ttft_ms = self._elapsed_ms()

    def on_message_complete(self) -> None:
        if self.done.done():
            return
        status, retry_after = (
            self._parser.get_status_code(),
            self._headers.get(b"retry-after", b"").decode("latin-1"),
        )
        waits_s = int(retry_after) if retry_after.isdecimal() else None
        fault = fault_of(self._call, status, waits_s, bytes(self._body))
        self.done.set_result(Answer(status, fault, self._elapsed_ms(), self._ttft_ms, waits_s))

    def end(self, fault: str, detail: str) -> None:
        """Give up on a reply, unless it is whole already."""
        if not self.done.done():
            self.done.set_result(Answer(0, f"{fault}: {detail}", self._elapsed_ms()))
        if self._transport is not None:
            self._transport.abort()

    def _elapsed_ms(self) -> float:
        return 1000 * (time.perf_counter() - self._sent_s) if self._sent_s else 0.0


def fault_of(call: Call, status: int, retry_after_s: int | None, body: bytes) -> str:
    """What is wrong with a whole reply, or "". A 200 must be as long as was asked for."""
    if status in REFUSALS:
        return "" if retry_after_s else "without Retry-After"
    if status not in ANSWERS:
        return f"not expected: {body[:EXCERPT].decode(errors='replace')}"
    if status != 200:
        return ""
    reply = last_event(body) if call.stream else body
    try:
        figures(call, reply)
    except Failed as failure:
        return f"not whole: {failure}"
    return ""


def last_event(stream: bytes) -> bytes:
    """The event with usage of a stream that ended with [DONE]; empty where it did not, or failed on its way."""
    lines = stream.split(b"\n")
    if any(map(ERROR.match, lines)) or not any(line.startswith(DONE) for line in lines):
        return b""
    return next((line.strip().removeprefix(b"data:") for line in lines if USAGE.search(line)), b"")
