"""A reply that is sent in pieces while they are made: server-sent events, or lines of JSON."""

from collections.abc import Mapping

from starlette.types import Send

EVENTS = "text/event-stream; charset=utf-8"
NDJSON = "application/x-ndjson"


class StreamedResponse:
    """Nothing leaves before `start`, so that an earlier error has its own status. `end` sends the last piece."""

    def __init__(self, send: Send, content_type: str) -> None:
        self.started = False
        self._send = send
        self._content_type = content_type

    async def start(self, headers: Mapping[str, str]) -> None:
        fields = {
            "content-type": self._content_type,
            "cache-control": "no-store",
            "x-accel-buffering": "no",
            **headers,
        }
        raw = [(name.lower().encode(), value.encode()) for name, value in fields.items()]
        await self._send({"type": "http.response.start", "status": 200, "headers": raw})
        self.started = True

    async def send(self, piece: bytes) -> None:
        await self._send({"type": "http.response.body", "body": piece, "more_body": True})

    async def end(self, piece: bytes) -> None:
        await self._send({"type": "http.response.body", "body": piece, "more_body": False})
