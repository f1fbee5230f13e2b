"""Decides which owners of leases are dead, from what this server has seen of the leases. It needs no database."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from billing.leases.lease_sql import Neglected
from billing.leases.lease_times import LeaseTimes


@dataclass(slots=True)
class _Seen:
    expires_at: float
    since: float
    last: float
    looks: int = 1


class DeadOwners:
    """An expired lease is not enough, since a clock may have jumped: it must also have been found unchanged
    in several looks, a renewal apart by this server's own clock. Its memory is bounded by what one look may return."""

    def __init__(self, times: LeaseTimes) -> None:
        self._times = times
        self._seen: dict[str, _Seen] = {}

    def forget(self) -> None:
        """Start over: the ledger was down, so the owners may not have been able to renew either."""
        self._seen.clear()

    def look(self, found: Iterable[Neglected], *, now: float, spared: Collection[str]) -> list[str]:
        """The holds whose owner is dead. `now` is this server's monotonic clock; `spared` are never among them."""
        before, self._seen = self._seen, {}
        dead = []
        for hold in found:
            seen = self._seen[hold.event_id] = self._seen_again(before.get(hold.event_id), hold, now)
            if hold.event_id not in spared and self._is_dead(seen, hold, now):
                dead.append(hold.event_id)
        return dead

    def _seen_again(self, seen: _Seen | None, hold: Neglected, now: float) -> _Seen:
        times = self._times
        if (
            seen is None
            or seen.expires_at != hold.expires_at
            or now - seen.last > 3 * times.renew_every_s + 1
        ):
            # Renewed; or this server has not looked for a long time, and may itself be the one that was stopped.
            return _Seen(hold.expires_at, now, now)
        if now - seen.last >= 0.9 * times.renew_every_s:
            seen.looks, seen.last = seen.looks + 1, now
        return seen

    def _is_dead(self, seen: _Seen, hold: Neglected, now: float) -> bool:
        if seen.looks < self._times.looks:
            return False
        # After the clock was set back it ends late: then it must have stayed unchanged for a whole lease.
        return hold.has_ended or now - seen.since >= self._times.ttl_s + self._times.renew_every_s
