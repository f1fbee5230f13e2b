"""A model's replicas: which one takes a request, how many wait, and what Ray is told of it.

Ray starts, stops and scales replicas by the load that its handles report. Requests that go past the handle are
entered in the handle's own counts here, so that autoscaling sees them; this is the one place that reaches into them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from models.engine import EngineRequest
from serve.hop.port import ADDRESS_KEY, Address

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

    from serve.hop.router import ReplicaRouter


class QueueFull(Exception):
    """As many requests wait for a replica as may wait."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A replica's place for one request."""

    address: Address
    replica_id: Any


class Replicas:
    """To be made and used in one event loop. `max_queued` requests may wait; -1: any number."""

    def __init__(self, handle: DeploymentHandle, *, max_queued: int) -> None:
        if not handle.is_initialized:
            handle._init(_run_router_in_separate_loop=False)
        self._handle = handle.options(method_name="generate")
        self._awake = handle.options(method_name="awake")
        self._max_queued = max_queued
        self._in_flight = 0
        self._waiting: deque[asyncio.Future[bool]] = deque()

    @property
    def _ray(self) -> Any:
        return self._handle._router._asyncio_router

    @property
    def _router(self) -> ReplicaRouter | None:
        """Ray's, once it knows the deployment."""
        router: ReplicaRouter | None = self._ray.request_router
        if router is not None:
            router.on_change = self._let_in
        return router

    def _room(self) -> int:
        """How many requests the running replicas may have at once."""
        router = self._router
        running = router.curr_replicas.values() if router else ()
        return sum(replica.max_ongoing_requests for replica in running)

    @asynccontextmanager
    async def lease(self, request: EngineRequest) -> AsyncIterator[Lease]:
        """Wait for a place and keep it. A replica is started where none runs.

        Raises `QueueFull`, and what a call through a Ray Serve handle raises.
        """
        await self._enter()
        try:
            lease = await self._choose(request)
            self._begin(lease.replica_id)
            try:
                yield lease
            finally:
                self._end(lease.replica_id)
        finally:
            self._leave()

    async def _choose(self, request: EngineRequest) -> Lease:
        running = self._router.curr_replicas if self._router else {}
        if len(running) == 1:
            ((replica_id, only),) = running.items()
            return Lease(Address(**only.replica_metadata[ADDRESS_KEY]), replica_id)
        async with self._handle.choose_replica(request, _reserve=False) as chosen:
            replica_id = chosen._replica.replica_id
            return Lease(Address(**chosen.replica_metadata[ADDRESS_KEY]), replica_id)

    def lost(self, lease: Lease) -> None:
        """Nothing listens there any more: no request goes to that replica until Ray names it again."""
        if self._router is not None:
            self._router.on_replica_actor_died(lease.replica_id)

    async def _enter(self) -> None:
        """Take a place, in the order of asking."""
        while True:
            room = self._room()
            if room == 0:
                # Through Ray's own queue, which makes the controller start a replica.
                await self._awake.remote()
            elif self._in_flight < room and not self._waiting:
                self._in_flight += 1
                return
            elif await self._turn():
                return

    async def _turn(self) -> bool:
        """Wait until `_let_in` gave this one a place, or (False) until no replica runs any more."""
        if 0 <= self._max_queued <= len(self._waiting):
            raise QueueFull
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        counts = self._ray._metrics_manager
        counts.inc_num_queued_requests()
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.result():
                self._leave()
            elif turn in self._waiting:
                self._waiting.remove(turn)
            raise
        finally:
            counts.dec_num_queued_requests()

    def _leave(self) -> None:
        self._in_flight -= 1
        self._let_in()

    def _let_in(self) -> None:
        room = self._room()
        while self._waiting and (room == 0 or self._in_flight < room):
            turn = self._waiting.popleft()
            if not turn.done():
                self._in_flight += room > 0
                turn.set_result(room > 0)

    def _begin(self, replica_id: Any) -> None:
        if self._router is not None:
            self._router.begin(replica_id)
        self._ray._metrics_manager.inc_num_running_requests_for_replica(replica_id)

    def _end(self, replica_id: Any) -> None:
        if self._router is not None:
            self._router.end(replica_id)
        self._ray._metrics_manager.dec_num_running_requests_for_replica(replica_id)
