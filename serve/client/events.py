"""The events of a streamed reply, taken out of its bytes as they come."""

import json
from collections.abc import AsyncGenerator, AsyncIterable
from typing import Any

from serve.client.errors import PithError

DONE = b"[DONE]"
# The last event of a chat has a receipt for every part that was compressed.
MAX_EVENT_BYTES = 32 * 2**20
_FIELD = b"data:"


async def events_of(pieces: AsyncIterable[bytes]) -> AsyncGenerator[dict[str, Any], None]:
    """Each event's JSON, up to `[DONE]`. Raises `PithError` for what is no event, for one that says an error, and for
    a stream that ends before it is done."""
    rest = b""
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        if len(rest) > MAX_EVENT_BYTES:
            raise PithError("an event of the reply is larger than this client takes")
        for line in lines:
            if not line.startswith(_FIELD):
                continue
            data = line.removeprefix(_FIELD).strip()
            if data == DONE:
                return
            yield _event(data)
    raise PithError("the reply broke off")


def _event(data: bytes) -> dict[str, Any]:
    try:
        event = json.loads(data)
    except ValueError as error:
        raise PithError("this address answers, but not as pith does") from error
    if not isinstance(event, dict):
        raise PithError("this address answers, but not as pith does")
    if isinstance(event.get("error"), dict):
        raise PithError(f"the reply failed: {event['error'].get('message', 'no reason given')}")
    return event
