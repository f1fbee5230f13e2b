"""One request over a socket of its own, so that its client can leave, dawdle or fall silent at any byte of it."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

import h11

from tests.faults.prices import PROMPT_COMPRESSION_PRICE

# A piece of text that is not empty: vLLM's first event names the role and has none.
TEXT = re.compile(rb'"content":\s*"(?!")')
READ_BYTES = 4096
# Between two pieces of a body that is sent slowly, and two reads of a slow reader.
DAWDLE_S = 0.03
BODY_PIECES = 5
# So small that a reply soon fills what lies between the server and a client that reads nothing.
SMALL_BUFFER_BYTES = 4096
# Above the send timeout of the harness's servers, with time to notice.
STOPPED_S = 1.5
PATHS = {
    "chat": "/v1/chat/completions",
    "squeezed": "/v1/chat/completions",
    "compress": "/v1/compress",
    "batch": "/v1/batch/compress",
}
QUERY = "When does the warranty end?"
# Of a chat whose prompt is compressed: what every one of them begins with, and the letters.
INSTRUCTIONS = "Answer the question with what the letters say. " * 6
LETTER = "Letter {number} of {whose} says that the lamp and its cable have {number} years of warranty."
LETTERS = 40
SQUEEZED = {"model": PROMPT_COMPRESSION_PRICE.model, "target_ratio": 0.3, "min_tokens": 1}
# `squeezed` is a chat whose prompt is compressed for money.
Kind = Literal["chat", "squeezed", "compress", "batch"]
CHATS: tuple[Kind, ...] = ("chat", "squeezed")
# `stops_reading`: takes the reply's first bytes, and nothing more until the server ends the connection.
Manner = Literal["plain", "slow body", "slow reader", "stops reading"]


@dataclass(frozen=True)
class Ask:
    """What is sent. `leaves_at_sent` and `leaves_at_read` are the byte at which the client goes, if it does.

    `n` is how many choices a chat has, and how many inputs a batch.
    """

    request_id: str
    key: str
    model: str
    max_tokens: int
    stream: bool
    prompt: str
    leaves_at_sent: int | None = None
    leaves_at_read: int | None = None
    kind: Kind = "chat"
    n: int = 1
    # Of a squeezed chat: whose letters it has, its own or those of others, and by which model, or as its project says.
    letters_of: str = ""
    squeezed_by: str | None = None
    manner: Manner = "plain"

    def as_bytes(self, port: int) -> bytes:
        body = json.dumps(self._fields()).encode()
        accept = "Accept: application/x-ndjson\r\n" if self.kind == "batch" and self.stream else ""
        head = (
            f"POST {PATHS[self.kind]} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n"
            f"Authorization: Bearer {self.key}\r\nX-Request-ID: {self.request_id}\r\n{accept}"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def _fields(self) -> dict[str, Any]:
        if self.kind == "compress":
            return {"query": QUERY, "input": self.prompt}
        if self.kind == "batch":
            items = [{"query": QUERY, "input": f"{self.prompt} {number}"} for number in range(self.n)]
            return {"items": items}
        choices = {"n": self.n} if self.n > 1 else {}
        return {
            "model": self.model,
            "messages": self._messages(),
            "max_tokens": self.max_tokens,
            "ignore_eos": True,
            "stream": self.stream,
            **choices,
            **({"compression": {**SQUEEZED, "model": self.squeezed_by}} if self.squeezed_by else {}),
        }

    def _messages(self) -> list[dict[str, Any]]:
        prompt = {"role": "user", "content": self.prompt}
        if self.kind != "squeezed":
            return [prompt]
        letters = "\n".join(LETTER.format(number=n, whose=self.letters_of) for n in range(LETTERS))
        marked = {"type": "text", "text": letters, "compress": True}
        asked = {"role": "user", "content": [marked, {"type": "text", "text": QUERY}]}
        return [{"role": "system", "content": INSTRUCTIONS}, asked, prompt]


@dataclass(frozen=True, order=True)
class Bill:
    """What a reply says of one usage event: its tokens, and its cost where the reply names one."""

    prompt_tokens: int
    completion_tokens: int
    usd: float | None


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
        """A whole 200 with what it used: what must be in the ledger exactly once."""
        return bool(self.bills)

    @property
    def bills(self) -> list[Bill]:
        """One for each usage event that a whole reply tells of."""
        if self.status != 200 or not self.is_whole:
            return []
        if self.ask.kind in CHATS:
            receipt = self.receipt
            return [_chat_bill(receipt), *_prompt_bills(receipt)] if receipt is not None else []
        return [_compression_bill(found) for found in self._compressions()]

    @property
    def is_degraded(self) -> bool:
        """Whether a whole reply says that its usage went through the spool."""
        if not self.completed:
            return False
        if self.receipt is not None:
            return bool(self.receipt["service"]["metering"]["status"] == "degraded")
        return self.headers.get("x-service-metering") == "degraded"

    @property
    def receipt(self) -> dict[str, Any] | None:
        """The JSON object that carries `usage` and `service`, of a completed chat."""
        if self.status != 200 or not self.is_whole or self.ask.kind not in CHATS:
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
    def prompt_status(self) -> str:
        """What became of the prompt's long parts, as a whole chat's reply says."""
        told = (self.receipt or {}).get("service", {}).get("compression")
        return str(told["status"]) if told else ""

    def _compressions(self) -> list[dict[str, Any]]:
        if self.ask.kind == "compress":
            return [json.loads(self.body)]
        if self.ask.stream:
            lines = [json.loads(line) for line in self.body.splitlines()]
            results = lines[:-1] if lines and "summary" in lines[-1] else []
        else:
            results = json.loads(self.body)["results"]
        return [result for result in results if result["status"] == "ok"]

    @property
    def error_code(self) -> str:
        """The code of a refusal, or what else became of a response that is not complete."""
        if self.status is None or self.status == 200 or not self.is_whole:
            return self.trouble or f"status {self.status}, broken off"
        return str(json.loads(self.body)["error"]["code"])

    @property
    def tokens_seen(self) -> int:
        """Tokens in the whole events of a stream that reached the client."""
        if self.ask.kind not in CHATS or not self.ask.stream or self.status != 200:
            return 0
        return len(TEXT.findall(self.body[: self.body.rfind(b"\n\n") + 2]))


def _chat_bill(receipt: dict[str, Any]) -> Bill:
    usage, billing = receipt["usage"], receipt["service"]["billing"]
    return Bill(usage["prompt_tokens"], usage["completion_tokens"], billing["request_cost_usd"])


def _prompt_bills(receipt: dict[str, Any]) -> list[Bill]:
    """Of the compression of the prompt, where something was charged for it."""
    told = receipt["service"].get("compression")
    if told is None or not told["cost_usd"]:
        return []
    receipts = [block["receipt"] for block in told["blocks"] if block["compressed"] and not block["cached"]]
    read, written = (sum(each[name] for each in receipts) for name in ("original_tokens", "output_tokens"))
    return [Bill(read, written, told["cost_usd"])]


def _compression_bill(found: dict[str, Any]) -> Bill:
    receipt = found["receipt"]
    return Bill(receipt["original_tokens"], receipt["output_tokens"], None)


async def send(ask: Ask, port: int, *, timeout_s: float) -> Answer:
    """Never raises for what a server or a network may do; `trouble` says what it was."""
    answer = Answer(ask)
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await _connect(ask, port)
            data = ask.as_bytes(port)
            await _write(writer, data[: ask.leaves_at_sent], slowly=ask.manner == "slow body")
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


async def _connect(ask: Ask, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if ask.manner != "stops reading":
        return await asyncio.open_connection("127.0.0.1", port)
    link = socket.socket()
    try:
        link.setblocking(False)
        # Before it connects, or the window is agreed on already.
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER_BYTES)
        await asyncio.get_running_loop().sock_connect(link, ("127.0.0.1", port))
        return await asyncio.open_connection(sock=link, limit=SMALL_BUFFER_BYTES)
    except BaseException:
        link.close()
        raise


async def _write(writer: asyncio.StreamWriter, data: bytes, *, slowly: bool) -> None:
    step = len(data) // BODY_PIECES + 1 if slowly else max(1, len(data))
    for at in range(0, len(data), step):
        if at:
            await asyncio.sleep(DAWDLE_S)
        writer.write(data[at : at + step])
        await writer.drain()


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
            await _dawdle(answer, seen)
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


async def _dawdle(answer: Answer, seen: int) -> None:
    if answer.ask.manner == "slow reader":
        await asyncio.sleep(DAWDLE_S)
    elif answer.ask.manner == "stops reading" and 0 < seen <= READ_BYTES:
        # Longer than the server lets a client take nothing; what it had sent by then is still there.
        await asyncio.sleep(STOPPED_S)


async def _close(writer: asyncio.StreamWriter, *, abruptly: bool) -> None:
    """Some clients leave with a reset, others with an orderly end."""
    if abruptly:
        writer.transport.abort()
        return
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
