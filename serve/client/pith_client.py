"""The requests to a running pith, and one sentence for any failure."""

import json
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, BinaryIO

import aiohttp

from serve.client import PithError

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


# Between two pieces of a file, in either direction.
FILE_SILENCE_S = 300.0
PIECE_BYTES = 2**18
FILES, BATCHES = "/openai/v1/files", "/openai/v1/batches"
_TIMEOUT = aiohttp.ClientTimeout(sock_connect=CONNECT_S, sock_read=FILE_SILENCE_S)


class BatchClient(PithClient):
    """Every method raises `PithError`."""

    async def upload(self, path: Path) -> str:
        """The id of the file."""
        try:
            file = path.open("rb")
        except OSError as error:
            raise PithError(f"{path}: cannot be read: {error.strerror}") from error
        with file:
            form = aiohttp.FormData()
            form.add_field("purpose", "batch")
            form.add_field("file", file, filename=path.name, content_type="application/jsonl")
            return str((await self._ask("POST", FILES, data=form, timeout=_TIMEOUT))["id"])

    async def make(self, file_id: str, endpoint: str) -> dict[str, Any]:
        asked = {"input_file_id": file_id, "endpoint": endpoint, "completion_window": "24h"}
        return await self._ask("POST", BATCHES, json=asked)

    async def find(self, batch_id: str) -> dict[str, Any]:
        return await self._ask("GET", f"{BATCHES}/{batch_id}")

    async def cancel(self, batch_id: str) -> dict[str, Any]:
        return await self._ask("POST", f"{BATCHES}/{batch_id}/cancel")

    async def listed(self, limit: int) -> list[dict[str, Any]]:
        """The newest first."""
        return list((await self._ask("GET", BATCHES, params={"limit": limit}))["data"])

    async def copy(self, file_id: str, to: BinaryIO) -> None:
        """Writes the file's content, piece by piece."""
        async with self._reply("GET", f"{FILES}/{file_id}/content", timeout=_TIMEOUT) as reply:
            if reply.status != 200:
                answer_of(reply.status, await bounded_body(reply))
            async for piece in reply.content.iter_chunked(PIECE_BYTES):
                try:
                    to.write(piece)
                except OSError as error:
                    raise PithError(f"{to.name}: cannot be written: {error.strerror}") from error
