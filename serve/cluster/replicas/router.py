"""Ranking of a model's replicas by Ray Serve: by the prompt that they have cached, and by load."""

import itertools
import time
from collections import Counter
from collections.abc import Callable
from typing import Literal

from ray.serve.request_router import FIFOMixin, PendingRequest, ReplicaID, RequestRouter, RunningReplica

from serve.cluster.replicas.known_caches import KnownCaches

# Requests that a replica may have above the least busy one, before its cache no longer counts.
SLACK = 8
# How long others are preferred to a replica that died under a request: Ray has noticed by then.
AVOIDED_S = 10.0


class ReplicaRouter(FIFOMixin, RequestRouter):
    """A `ray.serve.request_router.RequestRouter`, one in each process that has a handle.

    Loads are this process's own requests in flight, which `begin` and `end` count. `caches` is what replicas tell of
    theirs, by which a call is ranked whose argument is a list of a prompt's beginnings; None where nobody asks.
    """

    def initialize_state(self, routing: Literal["prefix_cache", "round_robin"]) -> None:
        """Called by Ray, once."""
        self._round_robin = itertools.count() if routing == "round_robin" else None
        self.load: Counter[ReplicaID] = Counter()
        self.on_change: Callable[[], None] = lambda: None
        self.caches = KnownCaches() if routing == "prefix_cache" else None
        self._avoided_until: dict[ReplicaID, float] = {}

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        if pending_request is not None:
            # Without this, Ray asks again at once when all replicas are full.
            pending_request.routing_context.should_backoff = True
        ranked, now_s = self._ranked(candidate_replicas, pending_request), time.monotonic()
        # Of several that died, the one that has had the longest to come back.
        ranked.sort(key=lambda replica: max(self._avoided_until.get(replica.replica_id, now_s), now_s))
        return [[replica] for replica in ranked] or [[]]

    def _ranked(
        self, candidates: list[RunningReplica], pending_request: PendingRequest | None
    ) -> list[RunningReplica]:
        """The best first."""
        if len(candidates) < 2:
            return list(candidates)
        if self._round_robin is not None:
            first = next(self._round_robin) % len(candidates)
            return candidates[first:] + candidates[:first]
        by_load = sorted(candidates, key=lambda replica: self.load[replica.replica_id])
        keys = next(iter(pending_request.args), None) if pending_request is not None else None
        if self.caches is None or not isinstance(keys, list):
            # A call that generates nothing.
            return by_load
        loads = {replica.replica_id: self.load[replica.replica_id] for replica in by_load}
        best = self.caches.pick(keys, loads, slack=SLACK, now_s=time.monotonic())
        return sorted(by_load, key=lambda replica: replica.replica_id != best)

    def avoid(self, replica_id: ReplicaID) -> None:
        """Prefer others for a while: it died under a request, and Ray may not have noticed yet."""
        self._avoided_until[replica_id] = time.monotonic() + AVOIDED_S

    def begin(self, replica_id: ReplicaID) -> None:
        """A request goes to this replica."""
        self.load[replica_id] += 1

    def end(self, replica_id: ReplicaID) -> None:
        """It has come to its end."""
        self.load[replica_id] -= 1
        if self.load[replica_id] <= 0:
            del self.load[replica_id]

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Ray says which replicas run."""
        super().update_replicas(replicas)
        self._changed()

    def on_replica_actor_died(self, replica_id: ReplicaID) -> None:
        super().on_replica_actor_died(replica_id)
        self._changed()

    def _changed(self) -> None:
        for gone in self._avoided_until.keys() - self.curr_replicas.keys():
            del self._avoided_until[gone]
        if self.caches is not None:
            self.caches.run(self.curr_replicas, time.monotonic())
        self.on_change()
