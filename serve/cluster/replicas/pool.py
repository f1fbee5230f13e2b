"""A model's replicas: which one takes a request by cached prefix and load, how many wait, and what Ray is told.

Ray starts, stops and scales replicas by the load that its handles report. Requests that go past the handle are
entered in the handle's own counts here, so that autoscaling sees them.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from models.engine import EngineRequest
from serve.cluster.ray_insides.ray_serve import RoutedHandle, replica_id_of
from serve.cluster.replicas.port import ADDRESS_KEY, Address
from serve.fairness.places import Claim, FairPlaces, Shares, claim_of

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

    from serve.cluster.replicas.router import ReplicaRouter
    from serve.metrics.background import Waits

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
    """To be made and used in one event loop. `max_queued` requests may wait; -1: any number. One project may hold
    its share of the places, as `FairPlaces` has it; `waits` counts one that waits."""

    def __init__(
        self, handle: DeploymentHandle, *, max_queued: int, shares: Shares, waits: Waits = nullcontext
    ) -> None:
        self._waits = waits
        self._handle = RoutedHandle(handle)
        self._places = FairPlaces(self._room, shares=shares, max_waiting=max_queued)

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
        claim = claim_of(request, places=1)
        await self._enter(claim)
        lease: Lease | None = None
        try:
            lease = await self._choose(request)
            self._begin(lease.replica_id)
            try:
                yield lease
            finally:
                self._end(lease.replica_id)
        finally:
            self._places.leave(claim, used_tokens=lease.used_tokens if lease else 0)

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

    async def _enter(self, claim: Claim) -> None:
        """Take a place, when its project's turn comes."""
        if self._room() and self._places.try_enter(claim):
            return
        with self._waits():
            while True:
                if self._room() == 0:
                    # Through Ray's own queue, which makes the controller start a replica.
                    await self._handle.wake()
                elif self._places.try_enter(claim) or await self._turn(claim):
                    return

    async def _turn(self, claim: Claim) -> bool:
        """Wait for a place, or (False) until no replica runs any more."""
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
