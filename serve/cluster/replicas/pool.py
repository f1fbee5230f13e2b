"""Requests to replicas: the connections to their ports, a place on one of them, and what they tell of their caches."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, nullcontext
from dataclasses import dataclass
from errno import EADDRNOTAVAIL, EMFILE, ENFILE, ENOBUFS, ENOMEM
from typing import TYPE_CHECKING, Any

from models.engine import EngineChunk, EngineFault, EngineRequest
from serve.cluster.ray_insides.ray_serve import RoutedHandle, replica_id_of
from serve.cluster.replicas.address import ADDRESS_KEY, Address, address_of, needed
from serve.cluster.replicas.cached_beginnings import beginnings
from serve.cluster.replicas.known_caches import KnownCache, KnownCaches
from serve.cluster.replicas.port import (
    READ_AHEAD_BYTES,
    WrongToken,
    asked_bytes,
    asked_what_is_cached,
    is_last,
    read_cached,
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
# A replica that has stopped telling what it has cached is asked again after this time.
ASK_AGAIN_S = 1.0
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

        Raises `ReplicaGone` or `EngineUnavailable`, before the first item, or `ReplyBroken`.
        """
        asked = asked_bytes(request, address)
        line = self._kept(address) or await _connected(address)
        is_done = False
        try:
            line.writer.write(asked)
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
            self._forget(address)
            raise ReplyBroken(str(error)) from error
        finally:
            if not is_done:
                line.writer.transport.abort()

    async def cached(self, address: Address) -> AsyncGenerator[tuple[Sequence[int], Sequence[int]], None]:
        """Yield the keys of all beginnings that the replica has cached, and from then on those that are added and those
        that are dropped, on a connection of its own. Raises as `generate` does."""
        line = await _connected(address)
        try:
            line.writer.write(asked_what_is_cached(address.token))
            while True:
                yield await read_cached(line.reader)
        except WrongToken:
            raise ReplicaGone(f"{address.host}:{address.port} is another replica's") from None
        except (asyncio.IncompleteReadError, OSError) as error:
            raise ReplyBroken(str(error)) from error
        finally:
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

    def _forget(self, address: Address) -> None:
        """The idle ones: where a replica has died they end with the one that broke, perhaps a moment later."""
        for line in self._idle.pop(address, ()):
            line.writer.close()

    async def close(self) -> None:
        for address in list(self._idle):
            self._forget(address)


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


class CacheWatch:
    """Asks replicas what they have in their caches, and keeps what they tell. To be used in one event loop."""

    def __init__(self, client: ReplicaClient) -> None:
        self._client = client
        self._caches = KnownCaches()
        self._asking: dict[Any, asyncio.Task[None]] = {}

    def follow(self, caches: KnownCaches, replicas: Mapping[Any, Address]) -> None:
        """From now on ask these, which run, and no others; `caches` has what they tell."""
        gone = self._asking.keys() if caches is not self._caches else self._asking.keys() - replicas.keys()
        for replica_id in list(gone):
            self._asking.pop(replica_id).cancel()
        self._caches = caches
        for replica_id in replicas.keys() - self._asking.keys():
            asking = self._ask(caches[replica_id], replicas[replica_id])
            self._asking[replica_id] = asyncio.create_task(asking)

    async def _ask(self, cache: KnownCache, address: Address) -> None:
        while True:
            try:
                async with aclosing(self._client.cached(address)) as told:
                    all_of_it, _ = await anext(told)
                    cache.told = set(all_of_it)
                    async for added, dropped in told:
                        cache.change(added, dropped, time.monotonic())
            except (ReplicaGone, ReplyBroken):
                # It has ended, which Ray is going to say; else it still has what it has told.
                pass
            await asyncio.sleep(ASK_AGAIN_S)

    async def close(self) -> None:
        asking = list(self._asking.values())
        self._asking.clear()
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


@dataclass(slots=True)
class Lease:
    """A replica's place for one request. Who has it keeps `used_tokens`, by which the next turn is given."""

    address: Address
    replica_id: Any
    used_tokens: int = 0


class Replicas:
    """To be made and used in one event loop. `max_queued` requests may wait; -1: any number. They take
    turns as `FairPlaces` has it; `waits` counts one that waits."""

    def __init__(
        self, handle: DeploymentHandle, client: ReplicaClient, *, max_queued: int, waits: Waits = nullcontext
    ) -> None:
        self._waits = waits
        self._handle = RoutedHandle(handle)
        self._places = FairPlaces(self._room, max_waiting=max_queued, on_pause=_left_to_the_replica)
        self._watch = CacheWatch(client)

    @property
    def _router(self) -> ReplicaRouter | None:
        router: ReplicaRouter | None = self._handle.router
        if router is not None and router.on_change != self._changed:
            router.on_change = self._changed
            self._changed()
        return router

    def _changed(self) -> None:
        """Other replicas run than before."""
        router = self._handle.router
        running = router.curr_replicas
        if router.caches is not None:
            # One alone is never chosen by what it has.
            watched = running if len(running) > 1 else {}
            self._watch.follow(router.caches, {name: _address(replica) for name, replica in watched.items()})
        self._places.let_in()

    async def close(self) -> None:
        await self._watch.close()

    def _room(self) -> int:
        """How many requests the running replicas may have at once."""
        router = self._router
        running = router.curr_replicas.values() if router else ()
        return sum(replica.max_ongoing_requests for replica in running)

    def said(self, key: str) -> list[Any]:
        """Values that the running replicas said of themselves when they started."""
        return [told[key] for told in self._told() if key in told]

    def addresses(self) -> list[Address]:
        """Of the running replicas, each with what it reads of a request."""
        return [address_of(told) for told in self._told() if ADDRESS_KEY in told]

    def _told(self) -> list[Mapping[str, Any]]:
        router = self._router
        return [replica.replica_metadata for replica in router.curr_replicas.values()] if router else []

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
        router = self._router
        running = router.curr_replicas if router else {}
        if len(running) == 1:
            ((replica_id, only),) = running.items()
            return Lease(_address(only), replica_id)
        if router and (other := await _of_some(router, request)):
            return other
        caches = router.caches if router else None
        keys = beginnings(request) if caches is not None else []
        async with self._handle.choose(keys) as chosen:
            lease = Lease(_address(chosen), replica_id_of(chosen))
        if caches is not None:
            caches.send(lease.replica_id, keys, time.monotonic())
        return lease

    def lost(self, lease: Lease) -> None:
        """Nothing listens there any more: no request goes to that replica until Ray names it again."""
        if self._router is not None:
            self._router.on_replica_actor_died(lease.replica_id)

    def avoid(self, lease: Lease) -> None:
        """It died under a request: for a while others are preferred to it."""
        if self._router is not None:
            self._router.avoid(lease.replica_id)

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


def _address(replica: Any) -> Address:
    """Of one that runs, or that was chosen."""
    return address_of(replica.replica_metadata)


async def _of_some(router: ReplicaRouter, request: EngineRequest) -> Lease | None:
    """The best of those that can answer the request, where others are of a version that cannot; None where all can, or
    none."""
    fields, running = needed(request), list(router.curr_replicas.values())
    able = [replica for replica in running if fields <= _address(replica).reads]
    if not 0 < len(able) < len(running):
        return None
    (best, *_), *_ = await router.choose_replicas(able)
    return Lease(_address(best), best.replica_id)


def _left_to_the_replica(place: Place) -> None:
    """Which pauses what runs, by the turns of all HTTP processes."""
