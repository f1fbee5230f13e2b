"""One chat request over a socket of its own, so that its client can leave at any byte of it."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import h11

# A piece of text that is not empty: vLLM's first event names the role and has none.
TEXT = re.compile(rb'"content":\s*"(?!")')
READ_BYTES = 4096


@dataclass(frozen=True)
class Ask:
    """What is sent. `leaves_at_sent` and `leaves_at_read` are the byte at which the client goes, if it does."""

    request_id: str
    key: str
    model: str
    max_tokens: int
    stream: bool
    prompt: str
    leaves_at_sent: int | None = None
    leaves_at_read: int | None = None

    def as_bytes(self, port: int) -> bytes:
        fields = {
            "model": self.model,
            "messages": [{"role": "user", "content": self.prompt}],
            "max_tokens": self.max_tokens,
            "ignore_eos": True,
            "stream": self.stream,
        }
        body = json.dumps(fields).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n"
            f"Authorization: Bearer {self.key}\r\nX-Request-ID: {self.request_id}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


@dataclass
class Answer:
    """What the client saw until the end, or until one of the two left."""

    ask: Ask
    status: int | None = None
    body: bytes = b""
    # The HTTP message came to its end.
    is_whole: bool = False
    left: bool = False
    trouble: str = ""
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def completed(self) -> bool:
        """A whole 200 with its usage and bill: what must be in the ledger exactly once."""
        return self.receipt is not None

    @property
    def receipt(self) -> dict[str, Any] | None:
        """The JSON object that carries `usage` and `service`, of a completed response."""
        if self.status != 200 or not self.is_whole:
            return None
        if not self.ask.stream:
            found: dict[str, Any] = json.loads(self.body)
            return found if "service" in found else None
        events = self.body.split(b"\n\n")
        if len(events) < 3 or events[-2:] != [b"data: [DONE]", b""]:
            return None
        last: dict[str, Any] = json.loads(events[-3].removeprefix(b"data: "))
        return last if "service" in last else None

    @property
    def error_code(self) -> str:
        """The code of a refusal, or what else became of a response that is not complete."""
        if self.status is None or self.status == 200 or not self.is_whole:
            return self.trouble or f"status {self.status}, broken off"
        return str(json.loads(self.body)["error"]["code"])

    @property
    def tokens_seen(self) -> int:
        """Tokens in the whole events of a stream that reached the client."""
        if not self.ask.stream or self.status != 200:
            return 0
        return len(TEXT.findall(self.body[: self.body.rfind(b"\n\n") + 2]))


async def send(ask: Ask, port: int, *, timeout_s: float) -> Answer:
    """Never raises for what a server or a network may do; `trouble` says what it was."""
    answer = Answer(ask)
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            data = ask.as_bytes(port)
            writer.write(data[: ask.leaves_at_sent])
            await writer.drain()
            if ask.leaves_at_sent is None:
                await _read(reader, answer)
            else:
                answer.left = True
    except TimeoutError:
        answer.trouble = f"no end within {timeout_s:g} s"
    except (OSError, h11.RemoteProtocolError) as error:
        answer.trouble = repr(error)
    finally:
        if writer is not None:
            await _close(writer, abruptly=answer.left and ask.max_tokens % 2 == 0)
    return answer


async def _read(reader: asyncio.StreamReader, answer: Answer) -> None:
    parser = h11.Connection(h11.CLIENT)
    parser.send(h11.Request(method="POST", target="/", headers=[("Host", "x"), ("Content-Length", "0")]))
    parser.send(h11.EndOfMessage())
    seen, leave = 0, answer.ask.leaves_at_read
    body = bytearray()
    try:
        while not answer.is_whole:
            if leave is not None and seen >= leave:
                answer.left = True
                return
            data = await reader.read(READ_BYTES if leave is None else min(READ_BYTES, leave - seen))
            seen += len(data)
            parser.receive_data(data)
            while (event := parser.next_event()) is not h11.NEED_DATA:
                if isinstance(event, h11.Response):
                    answer.status = event.status_code
                    answer.headers = {k.decode(): v.decode() for k, v in event.headers}
                elif isinstance(event, h11.Data):
                    body += event.data
                elif isinstance(event, h11.EndOfMessage):
                    answer.is_whole = True
                    return
                else:
                    return
    finally:
        answer.body = bytes(body)


async def _close(writer: asyncio.StreamWriter, *, abruptly: bool) -> None:
    """Some clients leave with a reset, others with an orderly end."""
    if abruptly:
        writer.transport.abort()
        return
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
