"""The requests about files and batches: files of any size go through in pieces."""

from pathlib import Path
from typing import Any, BinaryIO

import aiohttp

from serve.client.errors import PithError
from serve.client.pith_client import CONNECT_S, PithClient, answer_of, bounded_body

# Between two pieces of a file, in either direction.
SILENCE_S = 300.0
PIECE_BYTES = 2**18
FILES, BATCHES = "/openai/v1/files", "/openai/v1/batches"
_TIMEOUT = aiohttp.ClientTimeout(sock_connect=CONNECT_S, sock_read=SILENCE_S)


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
