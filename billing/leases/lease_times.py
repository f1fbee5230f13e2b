"""How long the leases of holds last, and how sure a server must be before it closes one of another server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """The same in every server of a ledger, and so no settings; tests have them shorter."""

    ttl_s: float = 60.0
    renew_every_s: float = 15.0
    # A lease is the owner's no more when so many looks at it, a renewal apart from each other, found it unrenewed.
    looks: int = 3
    # A lease that ends later than this was given by a clock that has been set back.
    absurd_s: float = 600.0
    # Holds of a release that knew no leases.
    ownerless_s: float = 7200.0

    @property
    def due_s(self) -> float:
        """What is left of a lease that its owner renews; requests that end sooner are never renewed."""
        return self.ttl_s - self.renew_every_s / 2

    @property
    def neglected_s(self) -> float:
        """What is left of a lease that a living owner would have renewed twice."""
        return self.due_s - self.renew_every_s * 1.5
