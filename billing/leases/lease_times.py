"""How long the leases of holds last, and when a server may close one of another server's."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """The same on every server of a ledger, hence not settings; tests use shorter ones."""

    ttl_s: float = 60.0
    renew_every_s: float = 15.0
    # An owner counts as dead after this many looks, a renewal apart, that found its lease unrenewed.
    looks: int = 3
    # A lease that ends later than this was granted before the clock was set back.
    absurd_s: float = 600.0
    # For holds of releases without leases.
    ownerless_s: float = 7200.0
    # How long the lines of batches that a process runs, and what it does for a whole batch, are its own.
    batch_s: float = 30.0

    @property
    def due_s(self) -> float:
        """A lease with less left is due for renewal; the leases of short requests never are."""
        return self.ttl_s - self.renew_every_s / 2

    @property
    def neglected_s(self) -> float:
        """A lease with less left would have been renewed twice by a living owner."""
        return self.due_s - self.renew_every_s * 1.5
