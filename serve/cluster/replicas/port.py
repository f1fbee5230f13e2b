"""One replica of a chat model, whatever its engine, and its private port, which the ingress alone may reach.

On the port the replica's token and a request as JSON go in, and frames of the reply come out. A token without a
request asks what the replica has in its prefix cache: frames of keys come out, until the connection is closed.
"""

import asyncio
import errno
import hmac
import logging
import secrets
import socket
from array import array
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from struct import Struct
from typing import Any, Protocol, TypeGuard

from pydantic_core import from_json, to_json

from models.counted_tokens import token_ids_of
from models.engine import EngineChunk, EngineFault, EngineRequest, ReplicaEngine, TokenUsage
from models.engine_kinds import RestartingEngine
from models.errors import EngineFailed
from serve.cluster.replicas.address import READS, Address, readable, request_of
from serve.cluster.replicas.applications import BOUND_KEY
from serve.cluster.replicas.cached_beginnings import CacheContents, TooSlow, beginnings
from serve.cluster.replicas.spare_scores import SpareScores
from serve.fairness.replica_turns import FairGeneration
from serve.fairness.spare_time import SpareTime
from serve.metrics.counts import ReplicaMetrics
from serve.money.prompt_bound import bound_fields
from serve.processes.connections import Connections, Place
from serve.processes.listener import BACKLOG, Acceptor, Listener, bound_socket
from serve.processes.process_setup import allow_open_files, files_to_spare

# The limit of a stream's buffer: beyond twice as many unread bytes, reading from the network pauses.
READ_AHEAD_BYTES = 2**18
TOKEN_BYTES, DIGEST_BYTES = 32, 32
# The token, and the bytes of the request that follow.
ASKED = Struct(f"!{TOKEN_BYTES}sI")
# Kind; tokens of prompt, completion, cache, reasoning; bytes that follow, which begin with a chunk's hash or zeros.
HEAD = Struct("!BIIIII")
_CHUNK, _LAST_CHUNK, _FAULT, _REFUSAL, _CACHED, _LAST_WITH_REPLY, _LAST_WITH_TOKENS, _TOLD = range(8)
# How many token ids of the reply stand before the last bytes, or how many bytes of JSON of all token ids.
REPLY = Struct("!I")
REFUSAL = HEAD.pack(_REFUSAL, 0, 0, 0, 0, 0)
# A key of a prompt's beginning, and a token id, as the machines of a cluster write them.
KEY = "I"
# An ingress is told of changes at once, and then no sooner than this: many at a time cost it less.
TELL_EVERY_S = 0.05
# From the accept to the token; an ingress sends it with its request, at once.
TOKEN_S = 5.0
# Connections without the token. With one more, the oldest goes; so there must be more than the few hundred that are
# taken in before the token of one that has it is read.
STRANGERS = 1024
# The first and the last that may be taken; None: any.
Ports = tuple[int, int] | None
Generate = Callable[[EngineRequest], AsyncGenerator[EngineChunk | EngineFault, None]]
logger = logging.getLogger("pith.replica_port")


class WrongToken(Exception):
    """The request is for another replica, or from a stranger."""


class Source(Protocol):
    async def readexactly(self, size: int) -> bytes:
        """Raises `asyncio.IncompleteReadError` at the end, if it comes before `size` bytes."""


def asked_bytes(request: EngineRequest, address: Address) -> bytes:
    """A request for the replica at this address; as JSON, integers of any size included. Raises `EngineUnavailable`
    where that is of a version that cannot answer it."""
    raw = to_json(readable(request, address.reads))
    return ASKED.pack(address.token.encode(), len(raw)) + raw


def asked_what_is_cached(token: str) -> bytes:
    """The question what a replica has cached."""
    return ASKED.pack(token.encode(), 0)


async def read_size(source: Source, token: str) -> int:
    """Bytes of the next request that follow, for `request_of`; 0: it is asked what is cached. Raises `WrongToken`,
    and what `source` raises."""
    given, size = ASKED.unpack(await source.readexactly(ASKED.size))
    if not hmac.compare_digest(given, token.encode()):
        raise WrongToken
    return int(size)


def is_last(item: EngineChunk | EngineFault) -> bool:
    """True where nothing comes after it."""
    return isinstance(item, EngineFault) or item.finished


def frame(item: EngineChunk | EngineFault) -> bytes:
    """One item of a reply."""
    if isinstance(item, EngineFault):
        fault = to_json(item)
        return HEAD.pack(_FAULT, 0, 0, 0, 0, len(fault)) + fault
    usage, kind, data = item.usage, _LAST_CHUNK if item.finished else _CHUNK, item.data
    if item.token_ids is not None:
        kind, told = _LAST_WITH_TOKENS, to_json(item.token_ids.fields())
        data = REPLY.pack(len(told)) + told + data
    elif item.reply:
        kind = _LAST_WITH_REPLY if item.finished else _TOLD
        data = REPLY.pack(len(item.reply)) + array(KEY, item.reply).tobytes() + data
    data = bytes.fromhex(item.tokens_sha256 or "00" * DIGEST_BYTES) + data
    tokens = (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens, usage.reasoning_tokens)
    return HEAD.pack(kind, *tokens, len(data)) + data


async def read_frame(source: Source) -> EngineChunk | EngineFault:
    """The next item of a reply. Raises `WrongToken` where the request was refused, and what `source` raises."""
    kind, *tokens, size = HEAD.unpack(await source.readexactly(HEAD.size))
    if kind == _REFUSAL:
        raise WrongToken
    data = await source.readexactly(size) if size else b""
    if kind == _FAULT:
        return EngineFault(**from_json(data))
    digest, data = data[:DIGEST_BYTES], data[DIGEST_BYTES:]
    tokens_sha256, token_ids = digest.hex() if any(digest) else None, None
    reply: tuple[int, ...] = ()
    if kind in (_LAST_WITH_REPLY, _TOLD):
        end = REPLY.size + REPLY.unpack_from(data)[0] * array(KEY).itemsize
        reply, data = tuple(array(KEY, data[REPLY.size : end])), data[end:]
    elif kind == _LAST_WITH_TOKENS:
        end = REPLY.size + REPLY.unpack_from(data)[0]
        token_ids, data = token_ids_of(from_json(data[REPLY.size : end])), data[end:]
    return EngineChunk(
        data, TokenUsage(*tokens), kind not in (_CHUNK, _TOLD), reply, tokens_sha256, token_ids
    )


def prompt_is_read(item: EngineChunk | EngineFault, request: EngineRequest) -> TypeGuard[EngineChunk]:
    """True from the first token on. Of several sequences the end tells how much all of them found. A score's prompt is
    found by no request."""
    if isinstance(item, EngineFault) or request.score:
        return False
    return item.finished or (request.sequences == 1 and item.usage.completion_tokens > 0)


def cached_frame(added: Sequence[int], dropped: Sequence[int]) -> bytes:
    """Keys of beginnings that are cached, and of those that are not any more."""
    data = array(KEY, added).tobytes() + array(KEY, dropped).tobytes()
    return HEAD.pack(_CACHED, len(added), len(dropped), 0, 0, len(data)) + data


async def read_cached(source: Source) -> tuple[Sequence[int], Sequence[int]]:
    """Keys added and keys dropped. Raises `WrongToken`, and what `source` raises."""
    kind, added, _, _, _, size = HEAD.unpack(await source.readexactly(HEAD.size))
    if kind == _REFUSAL:
        raise WrongToken
    keys = array(KEY, await source.readexactly(size))
    return keys[:added], keys[added:]


class ReplicaPort:
    """Serves `generate`, one request after another on a connection. Closing a connection ends its generation.

    What has been read of prompts is kept in `contents`, which is told to everyone who asks.
    """

    def __init__(self, generate: Generate, contents: CacheContents | None = None) -> None:
        self._generate = generate
        # One that is empty is false.
        self._contents = CacheContents() if contents is None else contents
        self._token = secrets.token_hex(TOKEN_BYTES // 2)
        self._acceptor: Acceptor | None = None
        self._lines: dict[_Line, asyncio.Task[None]] = {}
        self._is_closing = False

    async def open(self, host: str, ports: Ports = None) -> Address:
        """Listen on a free port of `host`, between the first and the last of `ports`. Raises `OSError`."""
        allow_open_files()
        most = min(STRANGERS, files_to_spare())
        self._strangers = Connections(most=most, most_per_client=most)
        sock = _listening(host, ports)
        self._acceptor = Acceptor(Listener(sock), self._protocol, self._lines)
        address, port = sock.getsockname()[:2]
        return Address(address, port, self._token, READS)

    async def close(self) -> None:
        """Take no more requests, and return when the running ones have ended."""
        self._is_closing = True
        if self._acceptor is not None:
            self._acceptor.close()
            await self._acceptor.wait_closed()
        for line in self._lines:
            line.end_when_idle()
        await asyncio.gather(*self._lines.values(), return_exceptions=True)

    def _protocol(self) -> asyncio.Protocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(READ_AHEAD_BYTES), self._connected)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = _Line(reader, writer, self._generate, self._contents)
        place = self._strangers.open(None, lambda _: writer.transport.abort())
        self._lines[line] = asyncio.create_task(self._serve(line, place))
        if self._is_closing:
            line.end_when_idle()

    async def _serve(self, line: "_Line", place: Place) -> None:
        try:
            # Whoever has the token is no stranger, and is not counted any more.
            await line.serve(self._token, lambda: self._strangers.close(place))
        finally:
            self._strangers.close(place)
            del self._lines[line]


def _listening(host: str, ports: Ports) -> socket.socket:
    first, last = ports or (0, 0)
    for port in range(first, last + 1):
        try:
            sock = bound_socket(host, port, shared=False)
            try:
                sock.listen(BACKLOG)
            except OSError:
                sock.close()
                raise
            return sock
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    raise OSError(errno.EADDRINUSE, f"no port of {host} is free from {first} to {last} (ray.replica_ports)")


class _Line:
    """One connection."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        generate: Generate,
        contents: CacheContents,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._generate = generate
        self._contents = contents
        self._answering: asyncio.Task[None] | None = None
        self._is_ending = False
        self._is_telling = False

    async def serve(self, token: str, known: Callable[[], None]) -> None:
        """Until the other side closes it, or is a stranger: `known` is called when it has sent the token."""
        try:
            # A machine that vanishes closes nothing.
            self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            async with asyncio.timeout(TOKEN_S):
                size = await read_size(self._reader, token)
            known()
            while True:
                raw = await self._reader.readexactly(size)
                if self._is_ending:
                    return
                if self._answering is not None:
                    await self._answering
                self._is_telling = size == 0
                self._answering = asyncio.create_task(self._tell() if self._is_telling else self._answer(raw))
                # During a reply too: the end of the stream means that the ingress has left.
                size = await read_size(self._reader, token)
        except WrongToken:
            self._writer.write(REFUSAL)
        except (asyncio.IncompleteReadError, OSError):
            pass  # It left, was shed, or the time for its token is over.
        finally:
            await self._close()

    def end_when_idle(self) -> None:
        self._is_ending = True
        if self._is_telling:
            # An ingress that does not read would keep the end waiting.
            self._writer.transport.abort()
        elif self._answering is None or self._answering.done():
            self._writer.close()

    async def _tell(self) -> None:
        """What is cached, and what becomes of it, until the ingress leaves."""
        try:
            with self._contents.listener() as changes:
                while True:
                    self._writer.write(cached_frame(*await changes.next()))
                    await self._writer.drain()
                    await asyncio.sleep(TELL_EVERY_S)
        except (OSError, TooSlow):
            pass  # It has left, or asks again.
        finally:
            self._writer.close()

    async def _answer(self, raw: bytes) -> None:
        """Any failure closes the connection, so that the ingress does not take the reply for complete."""
        is_whole = is_read = False
        try:
            request = request_of(from_json(raw))
            async with aclosing(self._generate(request)) as items:
                async for item in items:
                    self._writer.write(frame(item))
                    is_whole = is_last(item)
                    if not is_read and prompt_is_read(item, request):
                        is_read = True
                        self._contents.read(beginnings(request), item.usage)
                    if is_whole:
                        return
                    await self._writer.drain()
            logger.error("a generation ended without its last item")
        except OSError:
            pass  # The ingress has closed the connection.
        except Exception:
            logger.exception("a request of the ingress failed")
        finally:
            if self._is_ending or not is_whole:
                self._writer.close()

    async def _close(self) -> None:
        if self._answering is not None:
            self._answering.cancel()
            await asyncio.gather(self._answering, return_exceptions=True)
        self._writer.close()


class Replica:
    """To be made and used in one event loop. `start_again` makes an engine in the place of one that died; `give_up` is
    called where it cannot, or is None. `metrics`, where it has any, are counted in the same loop; `spare_share`: of the
    engine's time, what replies may be scored in."""

    def __init__(
        self,
        engine: ReplicaEngine,
        start_again: Callable[[], Awaitable[ReplicaEngine]] | None,
        *,
        give_up: Callable[[], None],
        metrics: ReplicaMetrics | None = None,
        spare_share: float = 0.0,
    ) -> None:
        # Of every engine that follows too: template and tokenizer stay.
        self._bound = bound_fields(engine.prompt_making)
        self._contents, self._metrics = CacheContents(engine.cache_tokens), metrics
        self._engine = RestartingEngine(engine, start_again, give_up=give_up, restarted=self._restarted)
        self._fair = FairGeneration(
            self._engine.generate, places=engine.places, pause=self._engine.pause, observer=metrics
        )
        self._scores = SpareScores(self._engine.score, SpareTime(self._fair.quiet_s, share=spare_share))
        self._port = ReplicaPort(self._generate, self._contents)

    def _generate(self, request: EngineRequest) -> AsyncGenerator[EngineChunk | EngineFault, None]:
        return self._scores.generate(request) if request.score else self._fair.generate(request)

    def _restarted(self) -> None:
        self._contents.clear()
        if self._metrics is not None:
            self._metrics.restart()

    async def open(self, host: str, ports: Ports = None) -> None:
        """Take requests on a free port of `host`, of `ports` if they are given. Raises `OSError`."""
        self._address = await self._port.open(host, ports)
        self._supervising = asyncio.create_task(self._engine.supervise())

    def metadata(self) -> dict[str, Any]:
        """Metadata that every handle's process gets to know of this replica."""
        return {**self._address.metadata(), BOUND_KEY: self._bound}

    async def count_tokens(
        self, request: EngineRequest, *, beyond_context: bool = False
    ) -> int | EngineFault:
        return await self._engine.count_tokens(request, beyond_context=beyond_context)

    def check(self) -> None:
        """Raises `EngineFailed` where the engine is dead. One that is being restarted is not reported."""
        if self._engine.dead:
            raise EngineFailed("the engine has died")

    async def close(self) -> None:
        """Take no more requests, and return when the running ones have ended and the engine is stopped."""
        self._scores.close()
        await self._port.close()
        self._supervising.cancel()
        await self._engine.stop()
