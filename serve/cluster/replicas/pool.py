"""Requests to replicas: the connections to their ports, and the choice of one with a free place."""

from __future__ import annotations

import asyncio
import socket
import zlib
from collections import OrderedDict, defaultdict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from errno import EADDRNOTAVAIL, EMFILE, ENFILE, ENOBUFS, ENOMEM
from typing import TYPE_CHECKING, Any

from models.engine import EngineChunk, EngineFault, EngineRequest
from serve.cluster.ray_insides.ray_serve import RoutedHandle, replica_id_of
from serve.cluster.replicas.port import (
    ADDRESS_KEY,
    READ_AHEAD_BYTES,
    Address,
    WrongToken,
    asked_bytes,
    is_last,
    read_frame,
)
from serve.fairness.places import FairPlaces
from serve.fairness.queue import Claim, Place, claim_of

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

    from serve.cluster.replicas.router import ReplicaRouter
    from serve.metrics.background import Waits

CONNECT_S = 5.0
KEEP_ALIVE_S = 60.0
# A machine that vanishes closes nothing: the kernel asks after it, and after this time gives the connection up.
VANISHED_S = 5
# Without these on this side, no connection is made even to a healthy replica.
OUT_OF_RESOURCES = (EMFILE, ENFILE, ENOBUFS, ENOMEM, EADDRNOTAVAIL)


class ReplicaGone(Exception):
    """Nothing listens where the replica was; it has not seen the request."""


class ReplyBroken(Exception):
    """The reply ended before its last item, or the request could not be sent for a reason on this side."""


@dataclass(slots=True)
class _Line:
    """One connection, which is idle from `kept_at` on."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    kept_at: float = 0.0

    def is_usable(self, now: float) -> bool:
        return not (self.reader.at_eof() or self.writer.is_closing() or now > self.kept_at + KEEP_ALIVE_S)


class ReplicaClient:
    """Kept connections to all replicas. To be made and used in one event loop."""

    def __init__(self) -> None:
        # The most recently used are at the end.
        self._idle: defaultdict[Address, deque[_Line]] = defaultdict(deque)

    async def generate(
        self, address: Address, request: EngineRequest
    ) -> AsyncGenerator[EngineChunk | EngineFault, None]:
        """Yield the replica's items up to the last one. Closing this iterator closes the connection, unless it is done.

        Raises `ReplicaGone`, before the first item, or `ReplyBroken`.
        """
        line = self._kept(address) or await _connected(address)
        is_done = False
        try:
            line.writer.write(asked_bytes(request, address.token))
            await line.writer.drain()
            while not is_done:
                item = await read_frame(line.reader)
                if is_done := is_last(item):
                    self._keep(address, line)
                yield item
        except WrongToken:
            # Another replica listens on the port that this one had.
            raise ReplicaGone(f"{address.host}:{address.port} is another replica's") from None
        except (asyncio.IncompleteReadError, OSError) as error:
            raise ReplyBroken(str(error)) from error
        finally:
            if not is_done:
                line.writer.transport.abort()

    def _kept(self, address: Address) -> _Line | None:
        idle, now = self._idle[address], asyncio.get_running_loop().time()
        while idle:
            line = idle.pop()
            if line.is_usable(now):
                return line
            line.writer.close()
        return None

    def _keep(self, address: Address, line: _Line) -> None:
        line.kept_at = asyncio.get_running_loop().time()
        self._idle[address].append(line)
        for other, idle in list(self._idle.items()):
            while idle and not idle[0].is_usable(line.kept_at):
                idle.popleft().writer.close()
            if not idle:
                del self._idle[other]

    async def close(self) -> None:
        for idle in self._idle.values():
            for line in idle:
                line.writer.close()
        self._idle.clear()


async def _connected(address: Address) -> _Line:
    try:
        async with asyncio.timeout(CONNECT_S):
            line = _Line(*await asyncio.open_connection(address.host, address.port, limit=READ_AHEAD_BYTES))
    except OSError as error:
        if error.errno in OUT_OF_RESOURCES:
            raise ReplyBroken(str(error)) from error
        raise ReplicaGone(str(error)) from error
    give_up_on_a_vanished_machine(line.writer.get_extra_info("socket"))
    return line


def give_up_on_a_vanished_machine(connection: socket.socket) -> None:
    """Have the kernel do so, whether it has been sent something or is waited for."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, 2),
        (socket.TCP_KEEPINTVL, 1),
        (socket.TCP_USER_TIMEOUT, VANISHED_S * 1000),
    ):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


# About the tokens of two of vLLM's blocks; it caches whole blocks only.
BLOCK_CHARS = 128
BLOCKS = 256
REMEMBERED = 100_000


@dataclass(slots=True)
class Lease:
    """A replica's place for one request. Who has it keeps `used_tokens`, by which the next turn is given."""

    address: Address
    replica_id: Any
    used_tokens: int = 0


class Replicas:
    """To be made and used in one event loop. `max_queued` requests may wait; -1: any number. They take
    turns as `FairPlaces` has it; `waits` counts one that waits."""

    def __init__(self, handle: DeploymentHandle, *, max_queued: int, waits: Waits = nullcontext) -> None:
        self._waits = waits
        self._handle = RoutedHandle(handle)
        self._places = FairPlaces(self._room, max_waiting=max_queued, on_pause=_left_to_the_replica)

    @property
    def _router(self) -> ReplicaRouter | None:
        router: ReplicaRouter | None = self._handle.router
        if router is not None:
            router.on_change = self._places.let_in
        return router

    def _room(self) -> int:
        """How many requests the running replicas may have at once."""
        router = self._router
        running = router.curr_replicas.values() if router else ()
        return sum(replica.max_ongoing_requests for replica in running)

    def said(self, key: str) -> list[Any]:
        """Values that the running replicas said of themselves when they started."""
        router = self._router
        running = router.curr_replicas.values() if router else ()
        return [replica.replica_metadata[key] for replica in running if key in replica.replica_metadata]

    @asynccontextmanager
    async def lease(self, request: EngineRequest) -> AsyncIterator[Lease]:
        """Wait for a place and keep it. A replica is started where none runs.

        Raises `QueueFull`, and what a call through a Ray Serve handle raises.
        """
        place = await self._enter(claim_of(request, places=1))
        lease: Lease | None = None
        try:
            lease = await self._choose(request)
            self._begin(lease.replica_id)
            try:
                yield lease
            finally:
                self._end(lease.replica_id)
        finally:
            self._places.leave(place, used_tokens=lease.used_tokens if lease else 0)

    async def _choose(self, request: EngineRequest) -> Lease:
        running = self._router.curr_replicas if self._router else {}
        if len(running) == 1:
            ((replica_id, only),) = running.items()
            return Lease(Address(**only.replica_metadata[ADDRESS_KEY]), replica_id)
        async with self._handle.choose(request) as chosen:
            return Lease(Address(**chosen.replica_metadata[ADDRESS_KEY]), replica_id_of(chosen))

    def lost(self, lease: Lease) -> None:
        """Nothing listens there any more: no request goes to that replica until Ray names it again."""
        if self._router is not None:
            self._router.on_replica_actor_died(lease.replica_id)

    async def _enter(self, claim: Claim) -> Place:
        """Take a place, when its project's turn comes."""
        if self._room() and (place := self._places.try_enter(claim)):
            return place
        with self._waits():
            while True:
                if self._room() == 0:
                    # Through Ray's own queue, which makes the controller start a replica.
                    await self._handle.wake()
                elif place := self._places.try_enter(claim) or await self._turn(claim):
                    return place

    async def _turn(self, claim: Claim) -> Place | None:
        """Wait for a place, or (None) until no replica runs any more."""
        self._handle.count_waiting(1)
        try:
            return await self._places.wait(claim)
        finally:
            self._handle.count_waiting(-1)

    def _begin(self, replica_id: Any) -> None:
        if self._router is not None:
            self._router.begin(replica_id)
        self._handle.count_running(replica_id, 1)

    def _end(self, replica_id: Any) -> None:
        if self._router is not None:
            self._router.end(replica_id)
        self._handle.count_running(replica_id, -1)


def _left_to_the_replica(place: Place) -> None:
    """Which pauses what runs, by the turns of all HTTP processes."""


@dataclass(frozen=True, slots=True)
class Beginnings:
    """A prompt's beginnings: a key for each, a block longer each time, and the first one's text.

    There is no key for a prompt shorter than a block. Workspaces never share a key, as they never share the cache;
    nor do a model and its adapters.
    """

    keys: Sequence[int]
    first: bytes


def beginnings(request: EngineRequest) -> Beginnings:
    text = "".join(f"{message.get('role')}:{message.get('content')};" for message in request.messages)
    text += "".join(f"{prompt};" for prompt in request.prompts[:1])
    found: list[int] = []
    so_far = hash((request.cache_salt, request.model_id))
    for start in range(0, min(len(text) - BLOCK_CHARS + 1, BLOCKS * BLOCK_CHARS), BLOCK_CHARS):
        so_far = hash((so_far, text[start : start + BLOCK_CHARS]))
        found.append(so_far)
    return Beginnings(found, (request.cache_salt + text[:BLOCK_CHARS]).encode())


class SentPrefixes:
    """Remembers which replicas were sent which beginnings, the last `REMEMBERED` of them."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._remembered = remembered
        self._replicas: OrderedDict[int, set[str]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._replicas)

    def note(self, keys: Sequence[int], replica: str) -> None:
        """`replica` was sent a prompt with these beginnings."""
        # The longest first, so that the shorter, which more prompts share, are forgotten last.
        for key in reversed(keys):
            self._replicas.setdefault(key, set()).add(replica)
            self._replicas.move_to_end(key)
        while len(self._replicas) > self._remembered:
            self._replicas.popitem(last=False)

    def match(self, keys: Sequence[int], replicas: Iterable[str]) -> dict[str, int]:
        """For each replica, how many blocks of the prompt it was sent before."""
        lengths = dict.fromkeys(replicas, 0)
        alive = set(lengths)
        for length, key in enumerate(keys, 1):
            alive &= self._replicas.get(key, set())
            if not alive:
                break
            lengths.update(dict.fromkeys(alive, length))
        return lengths

    def forget(self, gone: Iterable[str]) -> None:
        """These replicas have ended, and their caches with them."""
        names = set(gone)
        for key in [key for key, holders in self._replicas.items() if holders & names]:
            self._replicas[key] -= names
            if not self._replicas[key]:
                del self._replicas[key]


def pick(prompt: Beginnings, lengths: dict[str, int], loads: dict[str, int], *, slack: int) -> str:
    """The replica that has most of the prompt, unless it has over `slack` requests more than the least busy one.

    `lengths` and `loads` have the same keys: blocks in the cache, and requests in flight. Where both are equal, the
    prompt's beginning decides, by rendezvous hashing: ingress processes that never speak to one another agree.
    """
    most = min(loads.values()) + slack
    candidates = [name for name, load in loads.items() if load <= most]
    return max(
        candidates, key=lambda name: (lengths[name], -loads[name], zlib.crc32(prompt.first + name.encode()))
    )
