"""A load generator that costs little itself: raw HTTP/1.1 over kept connections, checked by the reply's last bytes."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Literal, cast

Kind = Literal["json", "sse"]
PROMPT = "Name the seven tired owls that look on from their old tree, oldest first."
TOKENS: dict[Kind, int] = {"json": 16, "sse": 64}


def request_bytes(kind: Kind, key: str) -> bytes:
    fields = {
        "model": "canned",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": PROMPT}],
        "max_tokens": TOKENS[kind],
        "temperature": 0,
        "stream": kind == "sse",
    }
    body = json.dumps(fields).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n"
        f"User-Agent: load\r\nAccept: application/json\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@dataclass
class Slice:
    """What one slice of load saw: seconds for each request, and the whole."""

    latencies_s: list[float] = field(default_factory=list)
    wall_s: float = 0.0


class _Client(asyncio.Protocol):
    """One connection that asks again as soon as it was answered, while there is something left to ask."""

    def __init__(self, kind: Kind, request: bytes, left: list[int], seen: Slice) -> None:
        self._end = b"}" if kind == "json" else b"\r\n0\r\n\r\n"
        self._is_json = kind == "json"
        self._request = request
        self._left = left
        self._seen = seen
        self._buffer = b""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._ask()

    def _ask(self) -> None:
        if self._left[0] == 0:
            self.done.set_result(None)
            return
        self._left[0] -= 1
        self._buffer, self._began = b"", time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._buffer.endswith(self._end) or (self._is_json and not self._is_whole()):
            return
        if not self._buffer.startswith(b"HTTP/1.1 200") or b'"status":"persisted"' not in self._buffer:
            self.done.set_exception(RuntimeError(f"not a settled reply: {self._buffer[:2000]!r}"))
            return
        self._seen.latencies_s.append(time.perf_counter() - self._began)
        self._ask()

    def _is_whole(self) -> bool:
        head, _, body = self._buffer.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return len(body) == length

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(error or ConnectionError("the server closed the connection"))


async def run_slice(kind: Kind, port: int, key: str, *, requests: int, clients: int) -> Slice:
    """Raises at the first reply that is not a settled 200."""
    seen, left = Slice(), [requests]
    request = request_bytes(kind, key)
    loop = asyncio.get_running_loop()
    began = time.perf_counter()
    made = [
        await loop.create_connection(lambda: _Client(kind, request, left, seen), "127.0.0.1", port)
        for _ in range(clients)
    ]
    await asyncio.gather(*(protocol.done for _, protocol in made))
    seen.wall_s = time.perf_counter() - began
    for transport, _ in made:
        transport.close()
    return seen
