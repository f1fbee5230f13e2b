"""The requests to a running pith, and one sentence for any failure."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import aiohttp

from serve.client.errors import PithError
from serve.client.events import events_of

# Above pith's own deadline for a compression (`deadline_s`, 60), whose error says more than a timeout here.
DEADLINE_S = 90.0
CONNECT_S = 10.0
# A compression's output is no longer than its input, of 2 MiB unless a configuration says otherwise.
MOST_REPLY_BYTES = 64 * 2**20
# Above the time that pith itself waits for a model to start, or for its next token (`progress_s`, 300).
SILENCE_S = 330.0


class PithClient:
    """Asks the pith at `url`, such as `http://127.0.0.1:8000`, with a project's key; some of it needs none."""

    def __init__(self, url: str, key: str | None, *, deadline_s: float = DEADLINE_S) -> None:
        self._url = url.rstrip("/")
        self._headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._timeout = aiohttp.ClientTimeout(total=deadline_s, sock_connect=CONNECT_S)

    async def compress(self, body: dict[str, Any]) -> dict[str, Any]:
        """The answer of `POST /v1/compress`. Raises `PithError`."""
        return await self._ask("POST", "/v1/compress", json=body)

    async def original(self, compression_id: str, span: dict[str, int]) -> dict[str, Any]:
        """The answer of `GET /v1/compress/{id}/original` for `start` and `end`. Raises `PithError`."""
        return await self._ask("GET", f"/v1/compress/{compression_id}/original", params=span)

    async def models(self) -> list[dict[str, Any]]:
        """The models of every kind with their prices, of `GET /openai/v1/models`; needs no key. Raises `PithError`."""
        return _objects(await self._ask("GET", "/openai/v1/models"), "data")

    async def chat(self, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """The events of a streamed `POST /v1/chat/completions`: the last one has `usage` and `service`. Raises
        `PithError`, also in the middle."""
        timeout = aiohttp.ClientTimeout(sock_connect=CONNECT_S, sock_read=SILENCE_S)
        given = {"json": body | {"stream": True}, "timeout": timeout}
        async with self._reply("POST", "/v1/chat/completions", **given) as reply:
            if reply.status != 200:
                answer_of(reply.status, await bounded_body(reply))
            async with aclosing(events_of(reply.content.iter_any())) as events:
                async for event in events:
                    yield event

    async def metrics(self) -> str:
        """The text of `GET /metrics`, where `url` is that of the ops port. Raises `PithError`."""
        async with self._reply("GET", "/metrics") as reply:
            if reply.status != 200:
                raise PithError("this address answers, but not as the ops port of pith does", reply.status)
            return (await bounded_body(reply)).decode(errors="replace")

    async def _ask(self, method: str, path: str, **sent: Any) -> dict[str, Any]:
        async with self._reply(method, path, **sent) as reply:
            return answer_of(reply.status, await bounded_body(reply))

    @asynccontextmanager
    async def _reply(self, method: str, path: str, **sent: Any) -> AsyncIterator[aiohttp.ClientResponse]:
        try:
            # A redirect is not followed: the key is for this address alone.
            async with (
                aiohttp.ClientSession(headers=self._headers, timeout=self._timeout) as session,
                session.request(method, self._url + path, allow_redirects=False, **sent) as reply,
            ):
                yield reply
        except TimeoutError as error:
            raise PithError(f"pith at {self._url} did not answer in time") from error
        except (aiohttp.ClientError, OSError) as error:
            raise PithError(f"pith at {self._url} cannot be reached: {error}") from error


async def bounded_body(reply: aiohttp.ClientResponse) -> bytes:
    """The body. Raises `PithError` for one that is longer than any of pith's: who answers may be somebody else."""
    body = bytearray()
    async for piece in reply.content.iter_any():
        body += piece
        if len(body) > MOST_REPLY_BYTES:
            raise PithError(
                f"this address answers with more than {MOST_REPLY_BYTES:,} bytes, which pith never does"
            )
    return bytes(body)


def answer_of(status: int, body: bytes) -> dict[str, Any]:
    """The body of a success. Raises `PithError` with what an error says."""
    try:
        fields = json.loads(body)
    except ValueError:
        fields = None
    if status != 200:
        raise PithError(f"pith refused ({status}): {_reason(fields)}", status)
    if not isinstance(fields, dict):
        raise PithError("this address answers, but not as pith does")
    return fields


def _objects(answer: dict[str, Any], name: str) -> list[dict[str, Any]]:
    found = answer.get(name)
    if not isinstance(found, list) or not all(isinstance(one, dict) and "id" in one for one in found):
        raise PithError("this address answers, but not as pith does")
    return found


def _reason(fields: Any) -> str:
    error = fields.get("error") if isinstance(fields, dict) else None
    message = error.get("message") if isinstance(error, dict) else None
    return str(message) if message else "no reason given"
