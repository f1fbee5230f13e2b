"""The ingress's side of the way to a replica: one request to its port, the reply item by item."""

import asyncio
from collections.abc import AsyncGenerator
from errno import EADDRNOTAVAIL, EMFILE, ENFILE, ENOBUFS, ENOMEM
from io import BytesIO

import aiohttp

from models.engine import EngineChunk, EngineFault, EngineRequest
from serve.cluster.replicas.port import Address
from serve.cluster.replicas.wire import GENERATE_PATH, is_last, read_frame, request_bytes

CONNECT_S = 5.0
KEEP_ALIVE_S = 60.0
# Above this aiohttp wants a file, to write it a piece at a time.
IN_ONE_PIECE_BYTES = 2**20
# For want of these here, no connection is made to a replica that lives.
OUT_OF_RESOURCES = (EMFILE, ENFILE, ENOBUFS, ENOMEM, EADDRNOTAVAIL)


class ReplicaGone(Exception):
    """Nothing listens where the replica was; it has not seen the request."""


class ReplyBroken(Exception):
    """The reply ended before its last item, or the request could not be sent for a reason on this side."""


class ReplicaClient:
    """Kept connections to all replicas. To be made and used in one event loop."""

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
            auto_decompress=False,
        )

    async def generate(
        self, address: Address, request: EngineRequest
    ) -> AsyncGenerator[EngineChunk | EngineFault, None]:
        """Yield the replica's items up to the last one. Closing this iterator closes the connection, unless it is done.

        Raises `ReplicaGone`, before the first item, or `ReplyBroken`.
        """
        response = await self._send(address, request)
        try:
            while True:
                item = await read_frame(response.content)
                if is_last(item):
                    # To the end, so that the connection is kept.
                    await response.content.read()
                    yield item
                    return
                yield item
        except (aiohttp.ClientError, asyncio.IncompleteReadError, ConnectionError) as error:
            raise ReplyBroken(str(error)) from error
        finally:
            # Closes a connection on which something is still to come, and gives back any other.
            response.close()

    async def _send(self, address: Address, request: EngineRequest) -> aiohttp.ClientResponse:
        raw = request_bytes(request)
        try:
            response = await self._session.post(
                address.url + GENERATE_PATH,
                data=raw if len(raw) < IN_ONE_PIECE_BYTES else BytesIO(raw),
                headers={"Authorization": f"Bearer {address.token}"},
            )
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, ConnectionError) as error:
            if _nobody_listens(error):
                raise ReplicaGone(str(error)) from error
            raise ReplyBroken(str(error)) from error
        if response.status == 200:
            return response
        response.close()
        if response.status >= 500:
            raise ReplyBroken(f"{address.url} answered {response.status}")
        # Another process listens on the port that the replica had.
        raise ReplicaGone(f"{address.url} answered {response.status}")

    async def close(self) -> None:
        await self._session.close()


def _nobody_listens(error: BaseException) -> bool:
    if isinstance(error, aiohttp.ClientConnectorError):
        return error.os_error.errno not in OUT_OF_RESOURCES
    return isinstance(error, aiohttp.ConnectionTimeoutError)
